#include "trireme/dataset/chat/syntax/lexer.h"

#include "tests/dataset/chat/rendering.h"

namespace trireme::dataset {
namespace {

TEST(TemplateLexer, TrimsLineEndsBehindBlocksAndWhiteSpaceBeforeThem) {
  EXPECT_EQ(render_text("a\n  {% if 1 %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render_text("a\n  {{ 1 }}\n  {# c #}\nb"), "a\n  1\nb");
  EXPECT_EQ(render_text("a  {% if 1 %} b {% endif %} c"), "a   b  c");
  EXPECT_EQ(render_text("{% if 1 %}\n\n b{% endif %}"), "\n b");
}

TEST(TemplateLexer, ObeysSigns) {
  EXPECT_EQ(render_text("a \n {%- if 1 -%} \n b {%- endif -%} \n c"), "abc");
  EXPECT_EQ(render_text("a\n  {%+ if 1 +%}\nb{% endif +%}\n"), "a\n  \nb");
  EXPECT_EQ(render_text("a\n {{- 1 -}} \n b {#- x -#} c"), "a1bc");
  EXPECT_EQ(render_text("{{-3}} {{ 'x' -}}\u2003y"), "3 xy");
}

TEST(TemplateLexer, LeavesRawBlocksAlone) {
  EXPECT_EQ(render_text("{% raw %} {{ x }} {% if %}\n  {% endraw %}\ny"), " {{ x }} {% if %}\ny");
  EXPECT_EQ(render_text("a {%- raw -%} {{ {%- endraw -%} b"), "a{{b");
}

TEST(TemplateLexer, TakesEveryLineEnd) {
  EXPECT_EQ(render_text("a\r\nb\rc\r\n"), "a\nb\nc");
  EXPECT_EQ(render_text("a\n\n"), "a\n");
  expect_error("\r\n\r\n{{ x.y }}", "line 3");
}

TEST(TemplateLexer, KnowsThatBracketsMayHoldBraces) {
  EXPECT_EQ(render_text("{{ {'a': {}} }}{{ '}}' }}{% if '%}' %}x{% endif %}"), "{'a': {}}}}x");
}

TEST(TemplateLexer, ReadsLiterals) {
  EXPECT_EQ(render_text(R"({{ [0x1F, 0b11, 0o17, 1_000, 1.5e3, 1e-2, 'a' "b"] }})"),
            "[31, 3, 15, 1000, 1500.0, 0.01, 'ab']");
  EXPECT_EQ(render_text(R"({{ "\u00e9\x41\101\\\'\n\q" }})"), "\u00e9AA\\'\n\\q");
  EXPECT_EQ(render_text("{{ 'a\\\nb' }}"), "ab");
  EXPECT_EQ(render_text("{{ '\\\u00e9' }}"), "\\xe9");  // as Jinja has it
  EXPECT_EQ(render_text("{{ [[1, [2, 3]]].0.1.1 }}"), "3");
  expect_error(R"({{ "\ud83d" }})", "no character");
  expect_error(R"({{ "\N{DASH}" }})", "\\N");
  expect_error(R"({{ "\x4" }})", "fewer than 2");
  expect_error("{{ 9223372036854775808 }}", "does not fit in 64 bits");
}

TEST(TemplateLexer, SaysWhatHasNoEnd) {
  expect_error("a\n{# b", "line 2 of the chat template: a comment has no end");
  expect_error("{{ 'a", "a text has no end");
  expect_error("{% raw %} ", "a raw block has no end");
  expect_error("{{ a", "found the end of the template");
  expect_error("{{ a } }}", "closes nothing");
  expect_error("{{ \u00e9 }}", "which does not belong there");
}

}  // namespace
}  // namespace trireme::dataset
