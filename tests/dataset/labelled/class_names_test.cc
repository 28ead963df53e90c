#include "trireme/dataset/labelled/class_names.h"

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

using Names = std::vector<std::string>;

std::string parse_refusal(std::string_view text) {
  return harness::message_of<ConfigError>([&] { ClassNames::parse(text, "x.classes.json"); });
}

TEST(ClassNames, AreInTheOrderOfTheirNumbersOrBytes) {
  EXPECT_EQ(ClassNames::of({"10", "9", "-1"}, "a").names(), (Names{"-1", "9", "10"}));
  EXPECT_EQ(ClassNames::of({"10", "9", "x"}, "a").names(), (Names{"10", "9", "x"}));
  EXPECT_EQ(ClassNames::of({"10", "09"}, "a").names(), (Names{"09", "10"}));
}

TEST(ClassNames, FindTheirIndex) {
  const ClassNames classes = ClassNames::of({"10", "9", "-1"}, "a");
  for (int64_t i = 0; i < classes.size(); ++i) {
    EXPECT_EQ(classes.index(classes.names()[i], "a.jsonl:7"), i);
  }
  const std::string message = harness::message_of<ConfigError>([] {
    ClassNames::of({"negative", "positive"}, "a").index("positiv", "v.jsonl:7");
  });
  EXPECT_EQ(message.find("v.jsonl:7: the label is \"positiv\""), 0U) << message;
  EXPECT_NE(message.find("did you mean \"positive\"?"), std::string::npos) << message;
}

TEST(ClassNames, AreReadAsTheyWereWritten) {
  const ClassNames classes = ClassNames::of({"gr\u00fcn", "\"", "rot"}, "a");
  EXPECT_EQ(ClassNames::parse(classes.text(), "b").names(), classes.names());
  EXPECT_EQ(ClassNames::of({"b", "a"}, "a").text(), "{\"classes\":[\"a\",\"b\"]}\n");
}

TEST(ClassNames, RefuseAFileThatIsSomethingElse) {
  for (const char* text : {"", "[]", "{}", R"({"classes": 2})", R"({"classes": ["a"]})",
                           R"({"classes": ["a", 1]})", R"({"classes": ["a", ""]})",
                           R"({"classes": ["a", "b", "a"]})", R"({"classes": ["a", "b\u0007"]})"}) {
    const std::string message = parse_refusal(text);
    EXPECT_EQ(message.find("x.classes.json"), 0U) << text << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  EXPECT_NE(harness::message_of<ConfigError>([] {
              ClassNames::of({"a"}, "rows.jsonl");
            }).find("rows.jsonl: the number of classes is 1"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::dataset
