// Values by themselves: dicts, numbers as text, JSON, order.
#include "trireme/dataset/chat/values/value.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/dataset/chat/values/arithmetic.h"
#include "trireme/dataset/chat/values/json_text.h"
#include "trireme/dataset/chat/values/subscript.h"
#include "trireme/dataset/chat/values/value_order.h"
#include "trireme/dataset/chat/values/value_text.h"

namespace trireme::dataset::chat {
namespace {

class TemplateValue : public testing::Test {
 protected:
  Value text(std::string_view bytes) { return Value::text(run_, bytes); }
  std::string shown(const Value& value) { return text_of(run_, value); }

  const std::string source_ = "test";
  const ChatTemplateLimits limits_;
  chat::Run run_{source_, limits_};
};

TEST_F(TemplateValue, NumbersAreWrittenAsInPython) {
  for (const auto& [number, expected] :
       std::vector<std::pair<double, std::string>>{{0, "0.0"},
                                                   {-0.0, "-0.0"},
                                                   {1, "1.0"},
                                                   {0.1, "0.1"},
                                                   {1e15, "1000000000000000.0"},
                                                   {1e16, "1e+16"},
                                                   {123456789.125, "123456789.125"},
                                                   {0.0001, "0.0001"},
                                                   {1e-5, "1e-05"},
                                                   {-2.5e-7, "-2.5e-07"},
                                                   {1e100, "1e+100"},
                                                   {5e-324, "5e-324"},
                                                   {std::numeric_limits<double>::infinity(), "inf"},
                                                   {-std::nan(""), "nan"}}) {
    EXPECT_EQ(number_text(number), expected);
  }
}

TEST_F(TemplateValue, TextsAreQuotedAsInPython) {
  const auto quoted = [&](std::string_view bytes) {
    return shown(Value::list(run_, {text(bytes)}));
  };
  EXPECT_EQ(quoted("it's"), "[\"it's\"]");
  EXPECT_EQ(quoted("it's \"so\""), "['it\\'s \"so\"']");
  EXPECT_EQ(quoted("\\\n\t\x7f\u00A0\u00E9\u200B\U000E0001"),
            "['\\\\\\n\\t\\x7f\\xa0\u00E9\\u200b\\U000e0001']");
}

TEST_F(TemplateValue, DictsKeepTheirOrderAndCountEqualNumbersAsOneKey) {
  Dict dict;
  dict.set(run_, text("b"), Value::integer(1));
  dict.set(run_, Value::integer(1), text("int"));
  dict.set(run_, Value::number(1.0), text("float"));
  dict.set(run_, text("b"), Value::none());
  EXPECT_EQ(shown(Value::dict(run_, dict)), "{'b': None, 1: 'float'}");
  EXPECT_EQ(dict.find(run_, Value::boolean(true))->as_text()->bytes, "float");
  EXPECT_THROW(dict.set(run_, Value::list(run_, {}), Value()), ConfigError);
}

TEST_F(TemplateValue, DictsAreCopiedWithTheirKeys) {
  Dict copy;
  {
    Dict dict;
    for (int i = 0; i < 100; ++i) dict.set(run_, text(std::to_string(i)), Value::integer(i));
    copy = dict;
  }
  EXPECT_EQ(std::get<int64_t>(copy.find("57")->held()), 57);
}

TEST_F(TemplateValue, IteratorsAreReadOnce) {
  const Value once = Value::sequence(run_, Shape::kIterator, {Value::integer(1)});
  EXPECT_EQ(items_of(run_, once).size(), 1u);
  EXPECT_EQ(items_of(run_, once).size(), 0u);
  EXPECT_TRUE(is_true(once));
}

TEST_F(TemplateValue, JsonIsWrittenAsInPython) {
  const auto value = from_json(
      run_,
      nlohmann::ordered_json::parse(R"({"b": [1, 2.0, null, true], "a": {}, "c": "é\"\u0001"})"),
      "x");
  EXPECT_EQ(shown(to_json(run_, value, {})),
            R"({"b": [1, 2.0, null, true], "a": {}, "c": "é\"\u0001"})");
  const JsonStyle style{
      .ensure_ascii = true, .indent = " ", .item_separator = ",", .sort_keys = true};
  EXPECT_EQ(shown(to_json(run_, value, style)),
            "{\n \"a\": {},\n \"b\": [\n  1,\n  2.0,\n  null,\n  true\n ],\n \"c\": "
            "\"\\u00e9\\\"\\u0001\"\n}");
  EXPECT_EQ(shown(to_json(run_, text("\U0001F600\x7f"), style)), "\"\\ud83d\\ude00\\u007f\"");
  EXPECT_THROW(to_json(run_, Value(), {}), ConfigError);
}

TEST_F(TemplateValue, NumbersAreReadAsInPython) {
  EXPECT_EQ(parse_integer(run_, " +1_000\n"), 1000);
  for (const char* bad : {"", "1_", "_1", "1__0", "+-1", "1.0", "0x1", "1 2"}) {
    EXPECT_FALSE(parse_integer(run_, bad)) << bad;
  }
  EXPECT_EQ(parse_number(" 1_0.5e1 "), 105);
  EXPECT_EQ(parse_number("1e999"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse_number("-1e-999"), 0);
  EXPECT_FALSE(parse_number("1e"));
  EXPECT_THROW(parse_integer(run_, "9223372036854775808"), ConfigError);
}

TEST_F(TemplateValue, NumbersAreRoundedByTheirExactValue) {
  EXPECT_EQ(rounded(2.5, 0), 2);
  EXPECT_EQ(rounded(3.5, 0), 4);
  EXPECT_EQ(rounded(2.675, 2), 2.67);
  EXPECT_EQ(rounded(1e308, 300), 1e308);
}

TEST_F(TemplateValue, SlicesTakeWhatPythonTakes) {
  const auto cut = [&](std::optional<int64_t> begin, std::optional<int64_t> end,
                       std::optional<int64_t> step) {
    const auto bound = [](std::optional<int64_t> index) {
      return index ? Value::integer(*index) : Value::none();
    };
    return shown(slice(run_, text("a\u00E9c\U0001F600e"), bound(begin), bound(end), bound(step)));
  };
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(cut(1, 3, {}), "\u00E9c");
  EXPECT_EQ(cut(-2, {}, {}), "\U0001F600e");
  EXPECT_EQ(cut({}, {}, -1), "e\U0001F600c\u00E9a");
  EXPECT_EQ(cut({}, {}, -2), "eca");
  EXPECT_EQ(cut(3, 1, -1), "\U0001F600c");
  EXPECT_EQ(cut(kLeast, kMost, kMost), "a");
  EXPECT_EQ(cut(kMost, kLeast, kLeast), "e");
  EXPECT_EQ(cut(9, 2, {}), "");
  EXPECT_THROW(cut({}, {}, 0), ConfigError);
}

}  // namespace
}  // namespace trireme::dataset::chat
