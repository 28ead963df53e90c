#include "trireme/dataset/chat/builtins/methods.h"

#include "tests/dataset/chat/rendering.h"

namespace trireme::dataset {
namespace {

void expect_value(const std::string& expression, const std::string& expected) {
  EXPECT_EQ(render_text("{{ " + expression + " }}"), expected) << expression;
}

TEST(TemplateMethods, SplitAndJoinTexts) {
  expect_value("'a,,b'.split(',')", "['a', '', 'b']");
  expect_value("' a  b '.split()", "['a', 'b']");
  expect_value("' a b  c '.split(none, 1)", "['a', 'b  c ']");
  expect_value("' a b  c '.rsplit(maxsplit=1)", "[' a b', 'c']");
  expect_value("'a,b,c'.rsplit(',', 1)", "['a,b', 'c']");
  expect_value("'a=b=c'.partition('=') + 'abc'.rpartition('=')",
               "('a', '=', 'b=c', '', '', 'abc')");
  expect_value("'-'.join(['a', 'b'])", "a-b");
  expect_value("'a\\r\\nb'.splitlines(true)", "['a\\r\\n', 'b']");
  expect_error("{{ ','.join([1]) }}", "joins an integer to a text");
  expect_error("{{ 'a'.split('') }}", "an empty text");
}

TEST(TemplateMethods, LookIntoTexts) {
  expect_value("[s.startswith('h'), s.endswith(('x', 'lo')), s.find('l'), s.rfind('l')]",
               "[True, True, 2, 3]");
  expect_value("['aaa'.count('aa'), s.count(''), s.find(''), s.rfind(''), s.find('x')]",
               "[1, 6, 0, 5, -1]");
  expect_value("['12'.isdigit(), ''.isdigit(), 'a1'.isalnum(), 'a'.isalpha(), ' '.isspace()]",
               "[True, False, True, True, True]");
  expect_error("{{ '\u00b2'.isdigit() }}", "which is not supported");
  expect_error("{{ s.index('x') }}", "finds no such text");
}

TEST(TemplateMethods, StripTexts) {
  expect_value(
      "['xxa'.lstrip('x'), ' a '.rstrip(), 'a.b'.removesuffix('.b'), 'ab'.removeprefix('a')]",
      "['a', ' a', 'a', 'b']");
  expect_error("{{ s.strip('x' * 1000) }}", "use at most 256");
}

TEST(TemplateMethods, FormatTexts) {
  expect_value("'{}-{} {{}}'.format(1, none)", "1-None {}");
  expect_value("'{1}{0}{a}'.format(1, 2, a=3)", "213");
  expect_error("{{ '{:>5}'.format(1) }}", "not supported");
  expect_error("{{ '{}'.format() }}", "gives no value");
}

TEST(TemplateMethods, ReadDictsAndLists) {
  expect_value("d.get('b') ~ d.get('x') ~ d.get('x', 0)", "1None0");
  expect_value("d.keys() ~ d.values()", "dict_keys(['b', 'a'])dict_values([1, [None, True, 1.5]])");
  expect_value("[l.index(2), l.count(3), l.copy() == l]", "[2, 1, True]");
}

TEST(TemplateMethods, ThatChangeAreDefinedNowhere) {
  expect_value("[l.append is defined, d.update is defined]", "[False, False]");
  expect_error("{{ l.append(1) }}", "the method append of a list, which would change it");
  expect_error("{{ s.encode() }}", "calls the method encode of a text, which is not supported");
}

TEST(TemplateTests, TellKindsApart) {
  expect_value("[n is number, n is integer, 1.5 is float, true is integer, true is number]",
               "[True, True, True, False, True]");
  expect_value(
      "[s is string, d is mapping, l is sequence, d is sequence, x is iterable, n is iterable]",
      "[True, True, True, True, True, False]");
  expect_value("[none is none, x is undefined, n is odd, n is divisibleby 3, n is in l, n is eq 3]",
               "[True, True, True, True, True, True]");
  expect_value("[false is false, 0 is false, 'a' is lower, range is callable, n is sameas n]",
               "[True, False, True, True, True]");
}

}  // namespace
}  // namespace trireme::dataset
