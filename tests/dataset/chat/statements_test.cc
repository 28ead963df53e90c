#include "tests/dataset/chat/rendering.h"

namespace trireme::dataset {
namespace {

TEST(TemplateStatements, ForTellsWhereItIs) {
  EXPECT_EQ(render_text("{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}"
                        "{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
                        "{{ loop.cycle('a', 'b') }} {% endfor %}"),
            "1032TrueFalse3a 2121FalseFalse3b 3210FalseTrue3a ");
  EXPECT_EQ(render_text("{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} "
                        "{% endfor %}"),
            "<3>1 3<1>2 1<2> ");
}

TEST(TemplateStatements, ForTakesOnlyWhatPassesItsCondition) {
  EXPECT_EQ(render_text("{% for x in l if x > 1 %}{{ x }}{{ loop.length }}{{ loop.last }}"
                        "{% endfor %}"),
            "32False22True");
  EXPECT_EQ(render_text("{% set n = namespace(on=true) %}{% for x in l if n.on %}{{ x }}"
                        "{% set n.on = false %}{% endfor %}"),
            "3");
}

TEST(TemplateStatements, ElseOfForRunsUnlessATurnWasCompleted) {
  EXPECT_EQ(render_text("{% for x in [] %}x{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render_text("{% for x in l %}x{% else %}none{% endfor %}"), "xxx");
  EXPECT_EQ(render_text("{% for x in l %}{% continue %}{% else %}none{% endfor %}"), "none");
}

TEST(TemplateStatements, BreakAndContinueBelongToTheInnermostLoop) {
  EXPECT_EQ(render_text("{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}"
                        "{{ y }}{% endfor %}{% if x == 1 %}{% continue %}{% endif %}{{ x }};"
                        "{% endfor %}"),
            "33;332;");
  expect_error("{% break %}", "outside of a loop");
  expect_error("{% for x in l %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}",
               "outside of a loop");
}

TEST(TemplateStatements, BlocksHaveTheirOwnVariables) {
  EXPECT_EQ(render_text("{% set x = 0 %}{% for i in l %}{% set x = x + 1 %}{{ x }}{% endfor %}"
                        "{{ x }}"),
            "1110");
  EXPECT_EQ(render_text("{% if 1 %}{% set x = 1 %}{% endif %}{{ x }}"), "1");
  EXPECT_EQ(render_text("{% set n = namespace(x=0) %}{% for i in l %}{% set n.x = n.x + i %}"
                        "{% endfor %}{{ n.x }}"),
            "6");
}

TEST(TemplateStatements, SetUnpacksAndTakesBlocks) {
  EXPECT_EQ(render_text("{% set a, (b, c) = 1, (2, 3) %}{{ a }}{{ b }}{{ c }}"), "123");
  EXPECT_EQ(render_text("{% set a | upper %} x{{ n }} {% endset %}[{{ a }}]"), "[ X3 ]");
  EXPECT_EQ(render_text("{% filter upper %}x{{ s }}{% endfilter %}"), "XH\u00c9LLO");
  expect_error("{% set a, b = l %}", "unpacks 3 values into 2");
  expect_error("{% set d.x = 1 %}", "which is no namespace");
}

TEST(TemplateStatements, MacrosTakeArgumentsByPlaceAndName) {
  const std::string macro = "{% macro f(a, b=a, c='z') %}{{ a }}{{ b }}{{ c }};{% endmacro %}";
  EXPECT_EQ(render_text(macro + "{{ f(1) }}{{ f(1, c=2) }}{{ f(b=1, a=2) }}{{ f(*l) }}{{ f() }}"),
            "11z;112;21z;312;z;");
  expect_error(macro + "{{ f(1, 2, 3, 4) }}", "it takes at most 3");
  expect_error(macro + "{{ f(x=1) }}", "which it does not take");
  expect_error(macro + "{{ f(1, a=1) }}", "twice");
  EXPECT_EQ(render_text("{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, a=2) }}"),
            "(1,){'a': 2}");
  EXPECT_EQ(render_text("{% macro f() %}<{{ caller(n) }}>{% endmacro %}"
                        "{% call(x) f() %}{{ x + 1 }}{% endcall %}"),
            "<4>");
}

TEST(TemplateStatements, MacrosSeeTheVariablesAroundTheirDefinition) {
  EXPECT_EQ(render_text("{% macro f() %}{{ late }}{% endmacro %}{% set late = 1 %}{{ f() }}"), "1");
  EXPECT_EQ(
      render_text("{% macro f() %}{{ x }}{% endmacro %}{% for x in l %}{{ f() }}{% endfor %}"), "");
}

}  // namespace
}  // namespace trireme::dataset
