// Templates that would take a program's time, memory, stack or files end in an error of one line.
#include "tests/dataset/chat/rendering.h"

namespace trireme::dataset {
namespace {

TEST(HostileTemplate, IsRefusedWhenItIsTooLarge) {
  expect_error(repeated(" ", (1 << 20) + 1), "expected at most 1048576");
  expect_error("\xc3(", "not UTF-8");
}

TEST(HostileTemplate, IsRefusedWhenItsSyntaxIsDeep) {
  const size_t n = 50'000;
  for (const auto& [begin, middle, end] :
       std::vector<std::array<std::string, 3>>{{"(", "1", ")"},
                                               {"[", "", "]"},
                                               {"{1:", "1", "}"},
                                               {"not ", "1", ""},
                                               {"-", "1", ""},
                                               {"a[", "1", "]"},
                                               {"a[:", "1", "]"},
                                               {"f(", "1", ")"},
                                               {"", "1", "+1"},
                                               {"", "1", " and 1"},
                                               {"", "a", ".b"},
                                               {"", "a", "|e"},
                                               {"", "a", "()"},
                                               {"", "1", " if 1"},
                                               {"", "1", " if 1 else 1"},
                                               {"", "1", " is eq(1)"},
                                               {"1 is eq ", "1", ""}}) {
    expect_error("{{ " + repeated(begin, n) + middle + repeated(end, n) + " }}",
                 "nested more than");
  }
  expect_error(repeated("{% if 1 %}", n / 2), "nested more than");
  expect_error(repeated("{% for x in l %}", n / 2), "nested more than");
  expect_error("{% set " + repeated("(", n) + "a" + repeated(")", n) + " = 1 %}", "nested more");
  EXPECT_EQ(render_text("{{ 1" + repeated("~1", 1000) + " }}").size(), 1001u);
  EXPECT_EQ(render_text("{{ " + repeated("(", 60) + "1" + repeated(")", 60) + " }}"), "1");
}

TEST(HostileTemplate, EndsWhenItsMacrosCallThemselves) {
  for (const char* text :
       {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(x=f()) %}{% endmacro %}{{ f() }}",
        "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
        "{% macro f(x) %}{% for i in l %}{{ [f([x])]|join|upper }}{% endfor %}{% endmacro %}"
        "{{ f(1) }}"}) {
    expect_error(text, "more than 500 deep");
  }
  expect_error("{{ 'a' | map(" + repeated("'map', ", 5000) + "'upper') | list }}",
               "more than 500 deep");
}

TEST(HostileTemplate, EndsWhenItTakesTooManySteps) {
  const ChatTemplateLimits limits{.max_steps = 100'000};
  for (const char* text :
       {"{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
        "{{ [0] * 1000000000 }}", "{{ 'x' * 50000000 }}",
        "{% set x = 's' * 3000000 %}{% for i in range(90000) %}{% set y = 'zz' in x %}{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(50) %}{% set n.x = [n.x, n.x] %}{% endfor "
        "%}"
        "{{ n.x }}",
        "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(50) %}{% set n.x = [n.x, n.x] %}"
        "{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
        "{{ ('\\n' * 5000000).splitlines() | length }}",
        "{{ ('x' * 5000000).split('x') | length }}", "{{ range(90000) | unique | list }}"}) {
    expect_error(text, "more than 100000 steps", limits);
  }
}

// Of what makes neither an element nor a text.
TEST(HostileTemplate, EndsWhenItsOtherWorkIsTooMuch) {
  const ChatTemplateLimits limits{.max_steps = 100'000};
  const auto often = [](const std::string& work) {
    return concat("{% for i in range(1000) %}{% set y = ", work, " %}{% endfor %}");
  };
  std::string keys;
  for (int i = 0; i < 200; ++i) keys += concat("'k", i, "': 1, ");
  for (const std::string& text : {"{% set d = {" + keys + "} %}" + often("namespace(d)"),
                                  std::string("{{ [] | sort(attribute=',' * 200000) }}"),
                                  "{% set t = ('a',) * 1000 %}" + often("'x'.startswith(t)"),
                                  std::string("{{ ['x'] | map(attribute='0.' * 200000) | list }}"),
                                  "{% set f = '{0}' * 1000 %}" + often("f.format('')"),
                                  "{% set f = '%s' * 1000, ('',) * 1000 %}" + often("f[0] % f[1]"),
                                  "{% set s = 'ab' * 300000 %}" + often("'a'.split(s)"),
                                  "{% set s = 'ab' * 300000 %}" + often("'a'.removeprefix(s)"),
                                  "{% set s = ' ' * 600000 %}" + often("s | int"),
                                  "{% set s = ' ' * 600000 %}" + often("s | float")}) {
    expect_error(text, "more than 100000 steps", limits);
  }
}

TEST(HostileTemplate, EndsWhenATextIsTooLarge) {
  const ChatTemplateLimits limits{.max_text_bytes = 100'000};
  for (const char* text :
       {"{{ 'x' * 1000000000 }}", "{{ range(1000) | join('x' * 1000) }}",
        "{{ ('x' * 1000) | replace('x', 'y' * 1000) }}",
        "{{ ('x' * 1000).replace('', 'y' * 999) }}",
        "{{ ('\\n' * 1000) | indent(1000, blank=true) }}",
        "{% set n = namespace(x='x') %}{% for i in l * 9 %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for i in l * 9 %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set x %}{% for i in range(90000) %}xx{% endfor %}{% endset %}"}) {
    expect_error(text, "more than 100000 bytes", limits);
  }
}

TEST(HostileTemplate, EndsWhenItPrintsTooMuch) {
  expect_error("{% for i in range(1000) %}{{ 'x' * 1000 }}{% endfor %}", "prints more than 50000",
               {.max_output_bytes = 50'000});
}

TEST(HostileTemplate, EndsWhenItsValuesAreDeep) {
  expect_error(
      "{% set n = namespace(x=[]) %}{% for i in range(1000) %}{% set n.x = [n.x] %}{% endfor %}",
      "more than 100 deep");
  expect_error(
      "{% set n = namespace(x={}) %}{% for i in range(1000) %}{% set n.x = {'a': n.x} %}{% endfor "
      "%}",
      "more than 100 deep");
}

TEST(HostileTemplate, CannotMakeACircleThatIsPrinted) {
  expect_error("{% set n = namespace() %}{% set n.x = [n] %}{{ n.x }}", "prints a namespace");
  EXPECT_EQ(render_text("{% set n = namespace() %}{% set n.x = n %}{{ n.x.x == n }}"), "True");
}

TEST(HostileTemplate, CannotReadOtherFiles) {
  for (const char* tag : {"include 'x'", "import 'x' as y", "extends 'x'", "from 'x' import y"}) {
    expect_error(concat("a\n{% ", tag, " %}"), "line 2 of the chat template: the tag");
  }
}

TEST(HostileTemplate, CannotReachWhatIsBehindValues) {
  for (const char* text :
       {"{{ ''.__class__.__mro__ }}", "{{ namespace.__init__.__globals__ }}",
        "{{ messages.append(1) }}", "{{ d.update(d) }}", "{{ d.pop('b') }}", "{{ d.clear() }}",
        "{% set n = namespace() %}{% set n._x = 1 %}", "{{ namespace(_x=1) }}", "{{ self.x }}"}) {
    error_of(text);
  }
}

TEST(HostileTemplate, CannotUseBlocksThatHaveEnded) {
  expect_error(
      "{% set n = namespace() %}{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}"
      "{% set n.m = m %}{% endfor %}{{ n.m() }}",
      "after the end of the block");
  expect_error(
      "{% set n = namespace() %}{% for i in l %}{% set n.l = loop %}{% endfor %}{{ n.l.index }}",
      "loop that has ended");
}

}  // namespace
}  // namespace trireme::dataset
