#include "trireme/dataset/chat/builtins/filters.h"

#include "tests/dataset/chat/rendering.h"

namespace trireme::dataset {
namespace {

void expect_values(const std::vector<std::pair<std::string, std::string>>& cases) {
  for (const auto& [expression, expected] : cases) {
    EXPECT_EQ(render_text("{{ " + expression + " }}"), expected) << expression;
  }
}

TEST(TemplateFilters, ChangeTexts) {
  expect_values({{"' a ' | trim", "a"},
                 {"'xay' | trim('xy')", "a"},
                 {"'a-b-c' | replace('-', '+', 1)", "a+b-c"},
                 {"'ab' | replace('', '.')", ".a.b."},
                 {"s | upper | lower | capitalize", "H\u00e9llo"},
                 {"'a\\n\\nb' | indent(2)", "a\n\n  b"},
                 {"'a\\n\\nb' | indent('>', true, true)", ">a\n>\n>b"},
                 {"'%s=%d' | format('a', 5)", "a=5"}});
}

TEST(TemplateFilters, EscapeOnce) {
  expect_values({{"'<\\'' | e", "&lt;&#39;"},
                 {"'<' | e | e", "&lt;"},
                 {"('<' | e) + '>'", "&lt;&gt;"},
                 {"('<' | safe) ~ '>'", "<>"}});
  expect_error("{{ ('<' | e).strip() }}", "of an escaped text");
}

TEST(TemplateFilters, MakeNumbers) {
  expect_values(
      {{"['5' | int, '5.9' | int, 'x' | int, 'x' | int(7), 5.9 | int]", "[5, 5, 0, 7, 5]"},
       {"['1.5' | float, 'x' | float, 3 | float, -3 | abs]", "[1.5, 0.0, 3.0, 3]"},
       {"[2.5 | round, 2.345 | round(2), 2.1 | round(0, 'ceil'), 7 | round]",
        "[2.0, 2.35, 3.0, 7]"}});
  expect_error("{{ x | int }}", "uses the variable x");
  expect_error("{{ 1e300 | int }}", "does not fit in 64 bits");
}

TEST(TemplateFilters, OrderItems) {
  expect_values({{"l | sort", "[1, 2, 3]"},
                 {"['b', 'A', 'a'] | sort", "['A', 'a', 'b']"},
                 {"['b', 'A', 'a'] | sort(true, true)", "['b', 'a', 'A']"},
                 {"messages | sort(attribute='role,content') | map(attribute='role') | join(' ')",
                  "assistant user"},
                 {"d | dictsort", "[('a', [None, True, 1.5]), ('b', 1)]"},
                 {"[l | min, l | max, l | sum, l | sum(start=1)]", "[1, 3, 6, 7]"},
                 {"['a', 'A', 1, 1.0] | unique | list", "['a', 1]"}});
  expect_error("{{ [1, 'a'] | sort }}", "no order");
}

TEST(TemplateFilters, ChooseItems) {
  expect_values(
      {{"[l | first, l | last, 'ab' | last, [] | first is defined]", "[3, 2, 'b', False]"},
       {"l | reverse | list", "[2, 1, 3]"},
       {"l | select('gt', 1) | list", "[3, 2]"},
       {"l | reject('odd') | list", "[2]"},
       {"messages | selectattr('role', 'equalto', 'user') | list | length", "1"},
       {"messages | rejectattr('content') | list", "[]"},
       {"messages | map(attribute='x', default='-') | join", "--"},
       {"[1, 2] | map('string') | map('replace', '1', 'x') | list", "['x', '2']"}});
  expect_error("{{ l | select | length }}", "make a list of it");
  expect_error("{{ l | map('upper') }}", "prints an iterator");
}

TEST(TemplateFilters, WriteJsonWithPythonsOptions) {
  expect_values(
      {{"d | tojson", "{\"b\": 1, \"a\": [null, true, 1.5]}"},
       {"d | tojson(separators=(',', ':'), sort_keys=true)", "{\"a\":[null,true,1.5],\"b\":1}"},
       {"s | tojson(true)", "\"h\\u00e9llo\""},
       {"[] | tojson(indent=2)", "[]"},
       {"[1] | tojson(indent='\\t')", "[\n\t1\n]"}});
  expect_error("{{ d | tojson(indent=100000) }}", "use at most 1000");
  expect_error("{{ x | tojson }}", "undefined value as JSON");
}

TEST(TemplateFilters, RefuseArgumentsThatTheyDoNotTake) {
  expect_error("{{ l | join(1, 2, 3) }}",
               "the filter join is given 3 arguments; it takes at most 2");
  expect_error("{{ l | join(x=1) }}", "the argument x, which it does not take");
  expect_error("{{ s | replace('a') }}", "is not given its argument new");
  expect_error("{{ s | trim(1) }}", "is given an integer as chars; expected a text");
}

}  // namespace
}  // namespace trireme::dataset
