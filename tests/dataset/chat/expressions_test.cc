#include "tests/dataset/chat/rendering.h"

namespace trireme::dataset {
namespace {

std::string value_of(const std::string& expression) {
  return render_text("{{ " + expression + " }}");
}

TEST(TemplateExpressions, HaveJinjasPrecedence) {
  EXPECT_EQ(value_of("1 + 2 * 3 - 4 / 2"), "5.0");
  EXPECT_EQ(value_of("2 ** 3 ** 2"), "64");
  EXPECT_EQ(value_of("-2 ** 2"), "4");
  EXPECT_EQ(value_of("-3 | abs"), "3");
  EXPECT_EQ(value_of("1 ~ 2 + 3 ~ 4"), "1234");
  EXPECT_EQ(value_of("not 1 in l and true"), "False");
  EXPECT_EQ(value_of("n is defined and n is not string or x"), "True");
  EXPECT_EQ(value_of("1 if false else 2 if false else 3"), "3");
}

TEST(TemplateExpressions, CalculateAsPython) {
  EXPECT_EQ(value_of("[7 // 2, -7 // 2, -7 % 3, 7 % -3, -7.5 // 2, -7.5 % 2, 2 ** -1]"),
            "[3, -4, 2, -2, -4.0, 0.5, 0.5]");
  expect_error("{{ 1 / 0 }}", "divides by 0");
  expect_error("{{ 9223372036854775807 + 1 }}", "does not fit in 64 bits");
  expect_error("{{ 2 ** 64 }}", "does not fit in 64 bits");
  expect_error("{{ (-9223372036854775807 - 1) // -1 }}", "does not fit in 64 bits");
  EXPECT_EQ(value_of("(-9223372036854775807 - 1) % -1"), "0");
  expect_error("{{ 1 + 'a' }}", "an integer + a text");
}

TEST(TemplateExpressions, CompareInChains) {
  EXPECT_EQ(value_of("[1 < 2 < 3, 1 < 2 > 3, 1 == 1.0 == true, 'a' in s, 'h' not in s]"),
            "[True, False, True, False, False]");
  EXPECT_EQ(value_of("[[1, 2] < [1, 3], (1,) == [1], 'a' < 'b', x == y, x == '']"),
            "[True, False, True, True, False]");
  expect_error("{{ 1 < 'a' }}", "no order");
  expect_error("{{ 1 in 'a' }}", "searches a text for an integer");
}

TEST(TemplateExpressions, TakeItemsBeforeMethodsInBrackets) {
  const std::string items = "{'items': 1, 'x': 2}";
  EXPECT_EQ(value_of(items + "['items']"), "1");
  EXPECT_EQ(value_of(items + ".items is callable"), "True");
  EXPECT_EQ(value_of("[d['items'] is callable, d.nothing is defined, none['x'] is defined]"),
            "[True, False, False]");
}

TEST(TemplateExpressions, RefuseToUseWhatIsUndefined) {
  EXPECT_EQ(value_of("x"), "");
  EXPECT_EQ(value_of("d.x"), "");
  expect_error("{{ x.y }}", "uses the variable x, which is not set");
  expect_error("\n{{ d.x.y }}", "line 2 of the chat template: uses the attribute x of a dict");
  expect_error("{{ l[3] + 1 }}", "uses the item 3 of a list");
  expect_error("{{ (1 if false) + 1 }}", "without else");
}

TEST(TemplateExpressions, CallOnlyFunctions) {
  EXPECT_EQ(value_of("range(3) | list"), "[0, 1, 2]");
  EXPECT_EQ(value_of("dict([('a', 1)], b=2)"), "{'a': 1, 'b': 2}");
  expect_error("{{ n() }}", "calls n, which is no function");
  expect_error("{{ d.a() }}", "calls a list, which is no function");
  expect_error("{{ range(1000000) }}", "more than 100000 integers");
  expect_error("{{ lipsum() }}", "calls lipsum, which is no function");
}

}  // namespace
}  // namespace trireme::dataset
