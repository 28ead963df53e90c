#include "trireme/base/random/random.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trireme {
namespace {

TEST(Entropy, FillsEveryByte) {
  // A byte that is never written stays zero in all of 64 fills; a random one does once in 2^512.
  std::vector<uint8_t> seen(1000);
  for (int fill = 0; fill < 64; ++fill) {
    std::vector<uint8_t> bytes(seen.size());
    fill_with_entropy(bytes);
    for (size_t i = 0; i < seen.size(); ++i) seen[i] |= bytes[i];
  }
  EXPECT_EQ(std::set<bool>(seen.begin(), seen.end()), std::set<bool>{true});
}

TEST(Entropy, NamesAreHexadecimalAndNeverTheSame) {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) names.insert(unique_name());
  EXPECT_EQ(names.size(), 1000u);
  for (const std::string& name : names) {
    EXPECT_EQ(name.size(), 32u);
    EXPECT_EQ(name.find_first_not_of("0123456789abcdef"), std::string::npos) << name;
  }
}

TEST(Entropy, AForkedChildDrawsOtherNames) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string name = unique_name();
    _exit(write(ends[1], name.data(), name.size()) == 32 ? 0 : 1);
  }
  const std::string mine = unique_name();
  std::string theirs(32, '\0');
  EXPECT_EQ(read(ends[0], theirs.data(), theirs.size()), 32);
  EXPECT_NE(mine, theirs);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace trireme
