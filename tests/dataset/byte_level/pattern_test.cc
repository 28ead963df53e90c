#include "trireme/dataset/byte_level/regex.h"

#include "tests/dataset/data.h"

namespace trireme::dataset {
namespace {

TEST(Pattern, KeepsWhatBothLibrariesReadAlike) {
  for (const char* pattern :
       {"'s|'t", R"( ?\p{L}+)", "(?i:'s|'ll)", R"(\P{N}{1,3})", "(?!a)(?=b)(?<!c)(?:d)(?>e)(f)",
        R"([^\r\n\p{Lu}\-\]\\])", "^a.$", "{", "a{2}b{3,}", R"(\.\|)", "[一-龥]"})
    EXPECT_EQ(as_pcre2(pattern, "file"), pattern);
}

TEST(Pattern, NamesClassesThatPcre2ReadsOtherwise) {
  EXPECT_EQ(as_pcre2(R"(\s+(?!\S))", "file"), R"(\p{White_Space}+(?!\P{White_Space}))");
  EXPECT_EQ(as_pcre2(R"([^\s\d])", "file"), R"([^\p{White_Space}\p{Nd}])");
  EXPECT_EQ(as_pcre2(R"(\p{Han}\P{Latin})", "file"), R"(\p{sc:Han}\P{sc:Latin})");
  EXPECT_EQ(as_pcre2(R"(\p{Alphabetic})", "file"), R"(\p{Alphabetic})");
  EXPECT_EQ(as_pcre2(R"(\u4e00\x{9FFF})", "file"), R"(\x{4e00}\x{9FFF})");
}

TEST(Pattern, RefusesWhatTheLibrariesReadDifferently) {
  for (const char* pattern :
       {R"(\w)",       R"(\bword)", R"(\h)",   R"(\Aa)",        R"(\1)",   R"(\Qa\E)",
        R"(\K)",       "\\",        "(?i)a",   "(?<name>a)",    "(*FAIL)", "(?#a)",
        "[[:alpha:]]", "[a[b]]",    "[a&&b]",  "[]a]",          "[^]]",    "a{,3}",
        "a{2}+",       "a{2,3}?",   R"(\pL)",  R"(\p{^L})",     R"(\p{L)", R"((?i:\p{Lu}))",
        R"(\u12)",     R"(\x41)",   R"(\x{})", R"(\x{1234567})"})
    expect_config_error([&] { as_pcre2(pattern, "file"); }, {"file: ", "does not support"});
}

}  // namespace
}  // namespace trireme::dataset
