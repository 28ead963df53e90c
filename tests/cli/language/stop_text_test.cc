#include "trireme/cli/language/stop_text.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

// However a text is cut into pieces, what comes out lies before the stop string that is complete
// first.
TEST(StopText, EndsBeforeTheFirstStringHoweverTheTextIsCut) {
  const std::string text = "aab aabaab\n\nuser: x";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, text},
      {{"z"}, text},
      {{"aabaab"}, "aab "},
      {{"\n\n", "user:"}, "aab aabaab"},
      {{"user:", "b a"}, "aa"},
      {{"aab a", "b"}, "aa"},
      {{"b", "aab"}, ""},
      {{"xx", "x"}, "aab aabaab\n\nuser: "}};
  for (const auto& [stops, expected] : cases) {
    for (size_t length = 1; length <= text.size(); ++length) {
      StopText found(stops);
      std::string shown;
      for (size_t at = 0; at < text.size() && !found.has_ended(); at += length)
        shown += found.add(text.substr(at, length));
      EXPECT_EQ(found.has_ended(), expected != text) << expected;
      shown += found.finish();
      EXPECT_EQ(shown, expected) << length;
    }
  }
}

TEST(StopText, HoldsBackOnlyWhatAStringMayBeginWith) {
  StopText text({"</s>", "abc"});
  EXPECT_EQ(text.add("x</"), "x");
  EXPECT_EQ(text.add("y"), "</y");
  EXPECT_EQ(text.add("aba"), "ab");
  EXPECT_EQ(text.add("bcd"), "");
  EXPECT_TRUE(text.has_ended());
  EXPECT_EQ(text.add("more"), "");
  EXPECT_EQ(text.finish(), "");
}

}  // namespace
}  // namespace trireme::cli
