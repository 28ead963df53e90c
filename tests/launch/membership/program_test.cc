#include "trireme/launch/membership/report.h"

#include <string>

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

TEST(ConfigLines, NameEachKeyWithItsSection) {
  EXPECT_EQ(config_lines("a = 1\n[train]\n  steps=300  # many\n\n# nothing\nname = \"a # b\"\n"),
            "a = 1\ntrain.steps = 300\ntrain.name = \"a # b\"\n");
  EXPECT_EQ(config_lines(""), "");
}

TEST(ProgramDifference, NamesTheKeys) {
  EXPECT_EQ(program_difference("a = 1\nb = 2\n", "a = 1\nb = 2\n"), "");
  EXPECT_EQ(program_difference("a = 1\nb = 2\n", "a = 1\nb = 3\n"), "b is 2, and 3 on the leader");
  EXPECT_EQ(program_difference("a = 1\n", "a = 1\nb = 3\n"), "b is not set, and 3 on the leader");
}

TEST(ProgramDifference, IsShortHoweverMuchDiffers) {
  std::string theirs;
  for (int i = 0; i < 100; ++i) theirs += "key" + std::to_string(i) + " = \x1b[2J\n";
  const std::string text = program_difference(theirs, "");
  EXPECT_NE(text.find("and 97 more"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace trireme::launch
