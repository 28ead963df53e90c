#include "trireme/dataset/chat/syntax/parser.h"

#include "tests/dataset/chat/rendering.h"

namespace trireme::dataset {
namespace {

TEST(TemplateParser, RefusesUnknownNamesBeforeRendering) {
  expect_error("\n{% if false %}{{ 1 | wordcount }}{% endif %}",
               "line 2 of the chat template: there is no filter wordcount here; there are abs,");
  expect_error("{% if false %}{{ 1 is escaped }}{% endif %}", "there is no test escaped here");
  expect_error("{% if false %}{{ cycler(1) }}{% endif %}", "calls cycler, which is no function");
  expect_error("{{ l | map('wordcount') }}", "there is no filter wordcount");
  expect_error("{{ l | selectattr('a', 'escaped') }}", "there is no test escaped");
  expect_error("{% do x %}", "the tag do is not supported");
  expect_error("{% fro x in l %}", "the tag fro is unknown; there are break, call");
}

TEST(TemplateParser, RefusesWhatJinjaHasAndThisHasNot) {
  expect_error("{% for x in l recursive %}{% endfor %}", "recursive");
  for (const char* tag : {"block a", "with a = 1", "autoescape true", "print 1"}) {
    expect_error(concat("{% ", tag, " %}"), "is not supported");
  }
}

TEST(TemplateParser, SaysWhereATagIsMissing) {
  expect_error("{% if 1 %}\na", "line 2 of the chat template: expected {% endif %}, found the end");
  expect_error("{% for x in l %}{% endif %}", "the tag endif closes nothing");
  expect_error("{% endfor %}", "the tag endfor closes nothing");
  expect_error("{% if 1 %}{% else %}{% else %}{% endif %}", "the tag else closes nothing");
}

TEST(TemplateParser, SaysWhatItExpected) {
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"{{ }}", "expected an expression, found }}"},
           {"{{ 1 2 }}", "expected }}, found a number"},
           {"{{ [1, 2 }}", "closes nothing"},
           {"{{ a. }}", "expected a name"},
           {"{{ a is }}", "expected a name"},
           {"{% set 1 = 2 %}", "expected the name of a variable"},
           {"{% set true = 2 %}", "cannot set true"},
           {"{% set loop = 2 %}", "cannot set loop"},
           {"{% for n.x in l %}{% endfor %}", "a loop sets an attribute"},
           {"{{ range(x=1, 2) }}", "out of order"},
           {"{{ range(x=1, x=2) }}", "given twice"},
           {"{% macro f(a=1, b) %}{% endmacro %}", "without a default"},
           {"{% macro f(a, a) %}{% endmacro %}", "there twice"},
           {"{{ 1 is odd is even }}", "cannot follow each other"},
           {"{% call n %}{% endcall %}", "calls nothing"}}) {
    expect_error(text, expected);
  }
}

}  // namespace
}  // namespace trireme::dataset
