#include "trireme/train/config/field_values.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

struct Values {
  TRIREME_KEYS_BEGIN(Values)
  TRIREME_KEY(int64_t, count, 3, kMustStay, "a number", Range{1, 5})
  TRIREME_KEY(uint64_t, seed, 7, kMustStay, "from 0 on", Range{0, 1e18})
  TRIREME_KEY(double, rate, 0.5, kMustStay, "a real number", Range{0, 1})
  TRIREME_KEY(bool, fast, true, kMustStay, "a choice")
  TRIREME_KEY(std::string, name, "x", kMustStay, "a text")
  TRIREME_KEYS_END()
};

class FieldValues : public ::testing::Test {
 protected:
  FieldValues() {
    Keys keys;
    keys.add("a", values_);
    fields_ = keys.take();
  }

  Field& field(const std::string& name) { return find_field(fields_, "a." + name, "test"); }
  std::string refusal(const std::string& name, const std::string& text) {
    return harness::message_of<ConfigError>([&] { assign_text(field(name), text, "--a." + name); });
  }
  std::string refusal_of_toml(const std::string& text) {
    return harness::message_of<ConfigError>(
        [&] { assign_table(fields_, toml::parse(text), "run.toml"); });
  }

  Values values_;
  std::vector<Field> fields_;
};

TEST_F(FieldValues, AreReadFromText) {
  assign_text(field("count"), "4", "test");
  assign_text(field("seed"), "18446744073709551615", "test");
  assign_text(field("rate"), "1e-3", "test");
  assign_text(field("fast"), "false", "test");
  assign_text(field("name"), "a \"b\"", "test");
  EXPECT_EQ(values_.count, 4);
  EXPECT_EQ(values_.seed, 18446744073709551615U);
  EXPECT_EQ(values_.rate, 1e-3);
  EXPECT_FALSE(values_.fast);
  EXPECT_EQ(values_.name, "a \"b\"");
}

TEST_F(FieldValues, OfAnotherTypeAreRefused) {
  EXPECT_EQ(refusal("count", "4.5"), "--a.count: a.count is \"4.5\"; expected a whole number");
  EXPECT_EQ(refusal("seed", "-1"),
            "--a.seed: a.seed is \"-1\"; expected a whole number of at least 0");
  EXPECT_EQ(refusal("fast", "yes"), "--a.fast: a.fast is \"yes\"; expected true or false");
  EXPECT_EQ(refusal_of_toml("[a]\nrate = true"), "run.toml:2: a.rate is true; expected a number");
  EXPECT_EQ(refusal_of_toml("[a]\ncount = [1]"),
            "run.toml:2: a.count is an array; expected a whole number");
}

TEST_F(FieldValues, ReadBackAsTheSameBits) {
  for (const double rate : {0.1, 1.0 / 3, 5e-324, 1.0, 0.0}) {
    values_.rate = rate;
    const std::string text = format_value(field("rate"));
    assign_table(fields_, toml::parse("[a]\nrate = " + text), "test");
    EXPECT_EQ(values_.rate, rate) << text;
  }
}

TEST_F(FieldValues, OutOfTheirRangeAreRefused) {
  check_field(field("count"));
  values_.count = 6;
  EXPECT_NE(harness::message_of<ConfigError>([&] {
              check_field(field("count"));
            }).find("a.count is 6; expected"),
            std::string::npos);
  values_.name = std::string(5000, 'x');
  EXPECT_EQ(harness::message_of<ConfigError>([&] { check_field(field("name")); }),
            "a.name has 5000 bytes; expected at most 4096");
}

TEST_F(FieldValues, KnowNumbersFromTexts) {
  EXPECT_TRUE(is_number(field("seed")));
  EXPECT_TRUE(is_number(field("rate")));
  EXPECT_FALSE(is_number(field("fast")));
  EXPECT_FALSE(is_number(field("name")));
}

}  // namespace
}  // namespace trireme::train
