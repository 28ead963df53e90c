#include "trireme/dataset/byte_level/regex.h"

#include "tests/dataset/data.h"

namespace trireme::dataset {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const Regex regex(pattern, "file");
  MatchMemory memory;
  std::vector<std::string> found;
  for (auto match = regex.find(text, 0, memory); match;
       match = regex.find(text, match->end, memory)) {
    found.emplace_back(text.substr(match->begin, match->end - match->begin));
  }
  return found;
}

using Texts = std::vector<std::string>;

TEST(Regex, FindsMatchesFromAnyPlace) {
  EXPECT_EQ(matches(R"(\p{L}+)", "ab 1 \u00E9\u6F22."), (Texts{"ab", "\u00E9\u6F22"}));
  EXPECT_EQ(matches("x", ""), Texts{});
  EXPECT_EQ(matches(R"((?<!a)b)", "abb"), Texts{"b"});
}

TEST(Regex, ReadsClassesAndAnchorsAsOnigurumaDoes) {
  EXPECT_EQ(matches(R"(\s)", "a\u180E\u0085\u200B\u3000"), (Texts{"\u0085", "\u3000"}));
  EXPECT_EQ(matches("a$", "a\nba\r"), Texts{"a"});
  EXPECT_EQ(matches("(?i:'s)", "'S '\u017F"), (Texts{"'S", "'\u017F"}));
  EXPECT_EQ(matches(R"(\d)", "1\u0663\u00BD"), (Texts{"1", "\u0663"}));
}

TEST(Regex, GivesBackAMillionSpaces) {
  const std::string spaces(1'000'000, ' ');
  const std::string pattern = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_EQ(matches(pattern, spaces), Texts{spaces});
  EXPECT_EQ(matches(pattern, spaces + "a"), (Texts{spaces.substr(1), " "}));
}

TEST(Regex, EndsAMatchThatExplodes) {
  expect_config_error([] { matches("(?:a|aa)+[bc]", std::string(5000, 'a')); },
                      {"file: ", "(?:a|aa)+[bc]", "takes too long", "5000 bytes"});
}

// Each match is short work for its length; all of them together are not.
TEST(Regex, EndsATextThatTakesTooLong) {
  const std::string text(128 << 10, 'a');
  for (const char* pattern : {"(?=a*b)a", "[^b]*b|."}) {
    const Regex regex(pattern, "file");
    MatchMemory memory;
    memory.begin_text(text.size());
    expect_config_error(
        [&] {
          for (auto match = regex.find(text, 0, memory); match;
               match = regex.find(text, match->end, memory)) {
          }
        },
        {"file: ", pattern, "takes too long on a text of 131072 bytes", "processor time"});
  }
}

// Whatever places of the text are tried at a time.
TEST(Regex, FindsTheFirstMatchHoweverFarItIs) {
  for (const size_t distance : {0, 1, 2, 15, 16, 17, 79, 80, 81, 1000, 5000, 70'000}) {
    std::string text;
    for (size_t i = 0; i < distance; ++i) text += "\u00E9";
    const Regex regex("(?<=\u00E9|^)x+|[0-9]", "file");
    MatchMemory memory;
    const auto match = regex.find(text + "xx1", 0, memory);
    ASSERT_TRUE(match);
    EXPECT_EQ(match->begin, text.size());
    EXPECT_EQ(match->end, text.size() + 2);
    EXPECT_FALSE(regex.find(text, 0, memory));
  }
}

TEST(Regex, RefusesPatternsThatAreNoneOrTooLarge) {
  for (const char* pattern :
       {"(a", "a)", "[a", "*a", R"(\p{Xx})", R"(\p{Nowhere})", "a{3,2}", R"(\x{110000})", "\xFF"})
    expect_config_error([&] { Regex(pattern, "file"); }, {"file: ", "pattern"});
  expect_config_error([] { Regex("a*", "file"); }, {"matches the empty text"});
  expect_config_error([] { Regex(std::string(20'000, 'a'), "file"); }, {"at most 16384"});
  expect_config_error([] { Regex("(((a{1000}){1000}){1000})", "file"); }, {"file: "});
}

}  // namespace
}  // namespace trireme::dataset
