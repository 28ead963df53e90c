#include "trireme/dataset/text/json_text.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/dataset/data.h"

namespace trireme::dataset {
namespace {

TEST(JsonText, IsTheMemberOfTheKey) {
  const TextKey key("text");
  EXPECT_EQ(key.text_of(R"({"id": [1, {}], "text": "gr\u00fcn\n\u0000", "n": null})", "a:1"),
            std::string("gr\u00fcn\n\0", 7));
  EXPECT_EQ(key.text_of(R"({"text": ""})", "a:1"), "");
  EXPECT_EQ(TextKey("a b").text_of(R"({"a b": "x"})", "a:1"), "x");
}

TEST(JsonText, OfAKeyWithDotsIsNested) {
  const TextKey key("data.en.text");
  EXPECT_EQ(key.text_of(R"({"data": {"en": {"text": "x"}}})", "a:1"), "x");
  EXPECT_EQ(key.text_of(R"({"data.en.text": "whole", "data": 1})", "a:1"), "whole");
  expect_config_error([&] { key.text_of(R"({"data": {"de": 1}})", "a:1"); },
                      {"a:1: \"data.en.text\"", "has no \"en\" but \"de\""});
  expect_config_error([&] { key.text_of(R"({"data": {"en": "x"}})", "a:1"); },
                      {"a:1: \"en\" is string; expected an object with \"text\""});
}

TEST(JsonText, OfALineThatIsNoRowIsRefused) {
  const TextKey key("text");
  const auto refuse = [&](const std::string& line, const std::vector<std::string>& parts) {
    expect_config_error([&] { key.text_of(line, "c4.jsonl:7"); }, parts);
  };
  refuse("", {"c4.jsonl:7", "not valid JSON"});
  refuse(R"({"text": "a")", {"c4.jsonl:7", "not valid JSON"});
  refuse(R"({"text": "a"} {"text": "b"})", {"c4.jsonl:7", "not valid JSON"});
  refuse("{\"text\": \"\xff\"}", {"c4.jsonl:7", "not UTF-8"});
  refuse(R"({"text": "\ud800"})", {"c4.jsonl:7", "not valid JSON"});
  refuse(R"([{"text": "a"}])", {"c4.jsonl:7 is not an object", "JSON lines"});
  refuse(R"("text")", {"c4.jsonl:7 is not an object"});
  refuse(R"({"content": "a", "url": "b"})",
         {"c4.jsonl:7 has no \"text\" but \"content\", \"url\"", "--text-key"});
  refuse("{}", {"c4.jsonl:7 has no \"text\"; name"});
  refuse(R"({"text": null})", {"c4.jsonl:7: \"text\" is null; expected a text"});
  refuse(R"({"text": ["a"]})", {"c4.jsonl:7: \"text\" is array"});
  refuse(R"({"text": "a", "text": "b"})", {"c4.jsonl:7", "\"text\" twice"});
}

TEST(JsonText, RefusesAKeyThatIsNoName) {
  for (const char* name : {"", ".", "a.", ".a", "a..b", "a\n"})
    expect_config_error([&] { const TextKey key(name); }, {"--text-key is "});
}

}  // namespace
}  // namespace trireme::dataset
