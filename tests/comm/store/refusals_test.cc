#include "trireme/comm/net/tcp_socket.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

TEST(Refusals, AreCountedByAddressAndReason) {
  Refusals refusals;
  EXPECT_EQ(refusals.to_string(), "");
  refusals.add("10.0.0.7", "wrong token");
  EXPECT_EQ(refusals.to_string(), "1 connection was refused: 1 from 10.0.0.7 (wrong token)");
  refusals.add("10.0.0.7", "wrong token");
  refusals.add("10.0.0.8", "is no rank");
  EXPECT_EQ(refusals.to_string(),
            "3 connections were refused: 2 from 10.0.0.7 (wrong token), 1 from 10.0.0.8 (is no "
            "rank)");
}

TEST(Refusals, AreToldLessOftenTheMoreThereAre) {
  std::vector<std::string> lines;
  Refusals refusals([&](const std::string& line) { lines.push_back(line); });
  for (int i = 0; i < 250; ++i) refusals.add("10.0.0.7", "wrong token");
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "refused a connection from 10.0.0.7: wrong token",
                       "refused 10 connections from 10.0.0.7: wrong token",
                       "refused 100 connections from 10.0.0.7: wrong token",
                   }));
}

TEST(Refusals, OfAnyNumberOfAddressesTakeBoundedMemoryAndLines) {
  std::vector<std::string> lines;
  Refusals refusals([&](const std::string& line) { lines.push_back(line); });
  for (int i = 0; i < 100'000; ++i) refusals.add(std::to_string(i), "wrong token");
  EXPECT_LT(lines.size(), 80u);
  EXPECT_LT(refusals.to_string().size(), 300u);
  EXPECT_EQ(refusals.to_string().find("100000 connections were refused: "), 0u);
  EXPECT_NE(refusals.to_string().find(" and 60 more"), std::string::npos) << refusals.to_string();
}

}  // namespace
}  // namespace trireme::comm
