#include "trireme/base/bounded_json.h"

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

using harness::message_of;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr JsonLimits kSmall{.max_bytes = 100, .max_values = 10, .max_depth = 3};

std::string repeated(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

// The message that `text` is refused with; empty: it is not.
std::string refusal(const std::string& text, const JsonLimits& limits = {}) {
  const std::string message = message_of<ConfigError>([&] { parse_json(text, "a.json", limits); });
  // The reader without exceptions takes and refuses the same texts.
  EXPECT_EQ(try_parse_json(text, limits).has_value(), message.empty()) << text.substr(0, 100);
  return message;
}

TEST(ParseJson, GivesWhatTheUnboundedParserGives) {
  for (const char* text :
       {"{}", "[]", "null", "true", "-1", "18446744073709551615", "2.5e3", "\"\\u00e9\\n\"",
        R"({"a": [1, {"b": [[], {}]}, "c"], "d": {"e": null, "f": [true, false]}, "": 0})",
        " [1 ,\n2 , [ 3 ] ] \n"}) {
    EXPECT_EQ(parse_json(text, "a.json"), json::parse(text)) << text;
    EXPECT_EQ(try_parse_json(text), json::parse(text)) << text;
  }
}

TEST(ParseJson, RefusesWhatIsNestedDeeperThanTheLimit) {
  EXPECT_EQ(refusal("[[[]]]", kSmall), "");
  EXPECT_EQ(refusal(R"({"a": {"b": {}}})", kSmall), "");
  const std::string problem = "a.json: the text has arrays or objects more than 3 deep";
  EXPECT_EQ(refusal("[[[[]]]]", kSmall), problem);
  EXPECT_EQ(refusal(R"([{"a": [{}]}])", kSmall), problem);
}

TEST(ParseJson, TextsOfManyLevelsEndAsOneLineAndNotInTheStack) {
  for (const char* level : {"[", "{\"a\":", "[{\"a\":[", "[0,["}) {
    EXPECT_EQ(refusal(repeated(level, 1'000'000)),
              "a.json: the text has arrays or objects more than 32 deep");
  }
}

TEST(ParseJson, WhatIsAsDeepAsItMayBeIsCopiedPrintedAndDropped) {
  const std::string text = repeated("[", 32) + repeated("]", 32);
  const json value = parse_json(text, "a.json");
  EXPECT_EQ(json(value).dump(), text);
}

TEST(ParseJson, RefusesMoreValuesThanTheLimit) {
  EXPECT_EQ(refusal("[1,2,3,4,5,6,7,8,9]", kSmall), "");
  const std::string problem = "a.json: the text has more than 10 values";
  EXPECT_EQ(refusal("[1,2,3,4,5,6,7,8,9,10]", kSmall), problem);
  EXPECT_EQ(refusal("[[],[],[],[],[],[],[],[],[],[]]", kSmall), problem);
  EXPECT_EQ(refusal(R"({"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10})", kSmall),
            problem);
}

TEST(ParseJson, RefusesMoreTextThanTheLimitBeforeItReadsAny) {
  EXPECT_EQ(refusal("\"" + std::string(98, 'x') + "\"", kSmall), "");
  EXPECT_EQ(refusal(std::string(101, '?'), kSmall),
            "a.json: the text has 101 bytes; expected at most 100");
}

TEST(ParseJson, RefusesAKeyThatAnObjectHasTwice) {
  EXPECT_EQ(refusal(R"({"a": 1, "b": {"a": 2}, "c": [{"a": 3}, {"a": 4}]})"), "");
  EXPECT_EQ(refusal(R"({"a": 1, "a": 1})"),
            "a.json: the text has the key \"a\" twice in one object");
  EXPECT_EQ(refusal(R"([{"b": {"a": {}, "\u0061": []}}])"),
            "a.json: the text has the key \"a\" twice in one object");
}

TEST(ParseOrderedJson, KeepsTheOrderOfKeys) {
  const char* text = R"({"b":1,"a":{"z":[{"y":2,"x":null}],"c":true}})";
  EXPECT_EQ(parse_ordered_json(text, "a.json").dump(), text);
}

TEST(ParseOrderedJson, HasTheLimitsOfTheOtherAndOneOfKeys) {
  const auto refused = [](const std::string& text) {
    return message_of<ConfigError>([&] { parse_ordered_json(text, "a.json"); });
  };
  EXPECT_THAT(refused(R"({"b": 1, "b": 2})"), HasSubstr("the key \"b\" twice"));
  EXPECT_THAT(refused(repeated("[", 40)), HasSubstr("more than 32 deep"));
  EXPECT_THAT(refused("{"), HasSubstr("not valid JSON"));
  std::string many = "{";
  for (int i = 0; i < 1001; ++i) many += concat(i == 0 ? "" : ",", "\"k", i, "\":0");
  EXPECT_THAT(refused(many + "}"), HasSubstr("an object of more than 1000 keys"));
  EXPECT_EQ(refusal(many + "}"), "");
}

TEST(ParseJson, SaysWhereATextIsDamagedWithoutTheParsersWords) {
  for (const std::string& text :
       {std::string("{\"a\": 1,\n tru}"), std::string(""), std::string("[1] 2"),
        std::string("[1,]"), std::string("{\"a\"}"), std::string("[01]"), std::string("nul"),
        std::string("[\"a"), std::string("\"\\ud800\""), std::string("// no\n1"),
        std::string("\"\x1b[31m\"")}) {
    EXPECT_THAT(refusal(text), AllOf(HasSubstr("a.json: the text is not valid JSON at line "),
                                     Not(HasSubstr("json.exception")), Not(HasSubstr("\n")),
                                     Not(HasSubstr("\x1b"))))
        << text;
  }
  EXPECT_EQ(refusal("{\"a\": 1,\n tru}"), "a.json: the text is not valid JSON at line 2, byte 14");
  EXPECT_EQ(refusal("[1, 1e999]"),
            "a.json: the text has a number that is too large at line 1, byte 9");
}

TEST(ParseJson, RefusesWhatIsNotUtf8AndWhatAZeroWouldHide) {
  for (const char* bytes : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82"}) {
    EXPECT_THAT(refusal(concat("[\"", bytes, "\"]")), HasSubstr("a.json: the text is not UTF-8 at"))
        << json(bytes).dump(-1, ' ', true, json::error_handler_t::replace);
  }
  EXPECT_EQ(refusal(std::string("{}\0{}", 5)),
            "a.json: the text is not valid JSON: it has a zero at byte 2");
}

class JsonViewTest : public ::testing::Test {
 protected:
  JsonView root() const { return {value_, source_}; }

  const std::string source_ = "run.json";
  const json value_ = json::parse(R"({
      "step": 7, "rate": 0.5, "on": true, "name": "w\u001b[31m", "empty": {},
      "largest": 9223372036854775807, "beyond": 9223372036854775808,
      "tensors": {"a b": {"shape": [2, -3, 1.0]}, "w_1": [[], "x"]}})");
};

TEST_F(JsonViewTest, GivesValuesOfTheirTypeAndRange) {
  EXPECT_EQ(root().at("step").integer(7, 7), 7);
  EXPECT_EQ(root().at("step").number(), 7.0);
  EXPECT_EQ(root().at("rate").number(0.5, 0.5), 0.5);
  EXPECT_TRUE(root().at("on").boolean());
  EXPECT_EQ(root().at("name").text(), "w\x1b[31m");
  EXPECT_EQ(root().at("largest").integer(0, std::numeric_limits<int64_t>::max()),
            std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(root().at("empty").members().empty());
  EXPECT_EQ(root().members().size(), 8);
  EXPECT_EQ(root().at("tensors").members()[1].first, "w_1");
  EXPECT_EQ(root().at("tensors").at("w_1").elements()[1].text(), "x");
  EXPECT_FALSE(root().find("absent").has_value());
  const json numbers = {1, 2, 3};
  EXPECT_THAT(JsonView(numbers, source_).integers(1, 3), ElementsAre(1, 2, 3));
}

TEST_F(JsonViewTest, NamesTheValueByItsPath) {
  const auto message = [](const auto& action) { return message_of<ConfigError>(action); };
  EXPECT_EQ(message([&] { root().at("step").integer(8, 9); }),
            "run.json: step is 7; expected a whole number from 8 to 9");
  EXPECT_EQ(message([&] { root().at("tensors").at("a b").at("shape").integers(0, 10); }),
            "run.json: tensors.\"a b\".shape[1] is -3; expected a whole number from 0 to 10");
  EXPECT_EQ(
      message([&] { root().at("tensors").at("a b").at("shape").elements()[2].integer(0, 1); }),
      "run.json: tensors.\"a b\".shape[2] is 1.0; expected a whole number from 0 to 1");
  EXPECT_EQ(message([&] { root().at("tensors").at("w_1").elements()[0].text(); }),
            "run.json: tensors.w_1[0] is an array of 0; expected a string");
  EXPECT_EQ(message([&] { root().at("absent"); }),
            "run.json: the text is an object of 8; expected an object with \"absent\"");
}

TEST_F(JsonViewTest, RefusesOtherTypesAndNumbersThatWouldChangeInTheirType) {
  const auto refuses = [](const auto& action) { return !message_of<ConfigError>(action).empty(); };
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  for (const char* key : {"rate", "on", "name", "empty", "beyond", "tensors"}) {
    EXPECT_TRUE(refuses([&] { root().at(key).integer(-kLargest - 1, kLargest); })) << key;
  }
  for (const char* key : {"on", "name", "empty"}) {
    EXPECT_TRUE(refuses([&] { root().at(key).number(); })) << key;
  }
  EXPECT_TRUE(refuses([&] { root().at("rate").number(0.6, 1); }));
  EXPECT_TRUE(refuses([&] { root().at("step").boolean(); }));
  EXPECT_TRUE(refuses([&] { root().at("step").text(); }));
  EXPECT_TRUE(refuses([&] { root().at("step").members(); }));
  EXPECT_TRUE(refuses([&] { root().at("step").at("a"); }));
  EXPECT_TRUE(refuses([&] { root().elements(); }));
}

TEST_F(JsonViewTest, ShowsOfATextOnlyItsBeginAndNothingATerminalObeys) {
  const std::string message = message_of<ConfigError>([&] { root().at("name").integer(0, 1); });
  EXPECT_EQ(message, "run.json: name is \"w\\u001b[31m\"; expected a whole number from 0 to 1");
  const json large = std::string(100'000, 'x');
  EXPECT_LT(message_of<ConfigError>([&] { JsonView(large, source_).integer(0, 1); }).size(), 200);
}

TEST(InQuotes, IsAsciiAndCut) {
  EXPECT_EQ(in_quotes("w\n\x1b"), R"("w\n\u001b")");
  EXPECT_EQ(in_quotes("\u00e9 and no UTF-8: \xff"), R"("\u00e9 and no UTF-8: ")");
  EXPECT_EQ(in_quotes("abcd", 4), R"("abcd")");
  EXPECT_EQ(in_quotes("abcde", 4), R"("abcd...")");
}

}  // namespace
}  // namespace trireme
