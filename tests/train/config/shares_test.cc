#include "trireme/train/config/shares.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

using dataset::Shares;

TEST(Shares, TextIsReadBack) {
  const std::vector<Shares> shares{{0, {3, 1}}, {4, {0, 4}}};
  const std::string text =
      "{\"step\": 1, \"micro_batches\": [3, 1]}\n{\"step\": 5, \"micro_batches\": [0, 4]}\n";
  EXPECT_EQ(to_text(shares), text);
  EXPECT_EQ(parse_shares(text, "file"), shares);
  EXPECT_EQ(forward_samples(shares), 4);
  EXPECT_EQ(largest_share(shares), 4);
  EXPECT_EQ(describe_shares(shares, 3), "3+1");
  EXPECT_EQ(describe_shares(shares, 4), "0+4");
}

TEST(Shares, TextThatIsNoneIsRefused) {
  const std::string line = "{\"step\": 1, \"micro_batches\": [3, 1]}\n";
  const std::vector<std::string> wrong = {"",
                                          "\n\n",
                                          "[]",
                                          "{\"step\": 1}",
                                          "{\"step\": 1, \"micro_batches\": []}",
                                          "{\"step\": 1, \"micro_batches\": [1.5]}",
                                          "{\"step\": 1, \"micro_batches\": [99999999999]}",
                                          "{\"step\": 0, \"micro_batches\": [1]}",
                                          "{\"step\": 1, \"micro_batches\": [1], \"other\": 1}",
                                          line + line,
                                          line + "{\"step\": 2, \"micro_batches\": [1, 2]}",
                                          line + "{\"step\": 2, \"micro_batches\": [1, 2, 1]}"};
  for (const std::string& text : wrong) {
    EXPECT_THROW(parse_shares(text, "file"), ConfigError) << text;
  }
}

TEST(Shares, AContinuedRunHasItsEarlierSharesAndTheNewOnes) {
  const std::vector<Shares> before{{0, {2, 2}}, {4, {1, 3}}, {9, {0, 4}}};
  const std::vector<Shares> after{{0, {3, 1}}, {2, {1, 3}}, {7, {4, 0}}};
  EXPECT_EQ(joined_shares(before, after, 2),
            (std::vector<Shares>{{0, {2, 2}}, {2, {1, 3}}, {7, {4, 0}}}));
  EXPECT_EQ(joined_shares(before, after, 5),
            (std::vector<Shares>{{0, {2, 2}}, {4, {1, 3}}, {7, {4, 0}}}));
  EXPECT_EQ(joined_shares(before, after, 0), after);
  EXPECT_EQ(joined_shares(std::vector<Shares>{{0, {2, 2, 2}}}, after, 3), after);
  EXPECT_EQ(joined_shares(std::vector<Shares>(), after, 3), after);
}

}  // namespace
}  // namespace trireme::train
