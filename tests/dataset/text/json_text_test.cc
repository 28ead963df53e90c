#include "trireme/dataset/text/json_text.h"

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "tests/dataset/data.h"

namespace trireme::dataset {
namespace {

std::string text_of(const TextKey& key, std::string line) {
  const size_t size = line.size();
  line.resize(size + kJsonPadding);
  return std::string(key.text_in(std::span(line).first(size), [] { return "c4.jsonl:7"; }));
}

TEST(JsonText, IsTheMemberOfTheKey) {
  const TextKey key("text");
  EXPECT_EQ(text_of(key, R"({"id": [1, {}], "text": "gr\u00fcn\n\u0000", "n": null})"),
            std::string("gr\u00fcn\n\0", 7));
  EXPECT_EQ(text_of(key, R"({"text": ""})"), "");
  EXPECT_EQ(text_of(TextKey("a b"), R"({"a b": "x"})"), "x");
}

TEST(JsonText, OfAKeyWithDotsIsNested) {
  const TextKey key("data.en.text");
  EXPECT_EQ(text_of(key, R"({"data": {"en": {"text": "x"}}})"), "x");
  EXPECT_EQ(text_of(key, R"({"data.en.text": "whole", "data": 1})"), "whole");
  expect_config_error([&] { text_of(key, R"({"data": {"de": 1}})"); },
                      {"c4.jsonl:7: \"data.en.text\"", "has no \"en\" but \"de\""});
  expect_config_error([&] { text_of(key, R"({"data": {"en": "x"}})"); },
                      {"c4.jsonl:7: \"en\" is string; expected an object with \"text\""});
}

TEST(JsonText, OfALineThatIsNoRowIsRefused) {
  const TextKey key("text");
  const auto refuse = [&](const std::string& line, const std::vector<std::string>& parts) {
    expect_config_error([&] { text_of(key, line); }, parts);
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
