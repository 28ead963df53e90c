#include "trireme/dataset/conversation/conversation.h"

#include "tests/dataset/data.h"

namespace trireme::dataset {
namespace {

using nlohmann::ordered_json;

constexpr const char* kTemplate = "{% if m.role == 'critic' %}";

Conversation read(std::string_view line) { return read_conversation(line, kTemplate, "a.jsonl:7"); }

void expect_refused(std::string_view line, const std::vector<std::string>& parts) {
  std::vector<std::string> all = {"a.jsonl:7"};
  all.insert(all.end(), parts.begin(), parts.end());
  expect_config_error([&] { read(line); }, all);
}

TEST(Conversation, IsItsMessagesToolsAndOptions) {
  const Conversation found = read(
      R"({"id": 3, "messages": [{"role": "user", "content": "Hi", "name": "Ann", "x": null},
          {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]}],
          "tools": [{"b": 1, "a": 2}], "chat_template_kwargs": {"enable_thinking": false}})");
  EXPECT_TRUE(found.has_tools());
  EXPECT_EQ(found.messages().size(), 2U);
  EXPECT_EQ(found.variables.dump(),
            R"({"messages":[{"role":"user","content":"Hi","name":"Ann"},)"
            R"({"role":"assistant","content":[{"type":"text","text":"Hello"}]}],)"
            R"("tools":[{"b":1,"a":2}],"enable_thinking":false})");
}

TEST(Conversation, ToolsMayBeAText) {
  const Conversation found =
      read(R"({"messages": [{"role": "user", "content": ""}], "tools": "[{\"b\": 1, \"a\": 2}]"})");
  EXPECT_EQ(found.variables.at("tools").dump(), R"([{"b":1,"a":2}])");
  EXPECT_FALSE(
      read(R"({"messages": [{"role": "user", "content": ""}], "tools": null})").has_tools());
  expect_refused(R"({"messages": [{"role": "user", "content": ""}], "tools": "[{"})", {"tools"});
  expect_refused(R"({"messages": [{"role": "user", "content": ""}], "tools": {"a": 1}})",
                 {"\"tools\" is not a list"});
}

TEST(Conversation, MayBeShareGpts) {
  const Conversation found = read(
      R"({"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "u"},
          {"from": "gpt", "value": "a"}, {"from": "user", "value": "v"}]})");
  EXPECT_EQ(found.messages().dump(),
            R"([{"role":"system","content":"s"},{"role":"user","content":"u"},)"
            R"({"role":"assistant","content":"a"},{"role":"user","content":"v"}])");
  expect_refused(R"({"conversations": [{"from": "bing", "value": "u"}]})",
                 {"message 0 has the role \"bing\""});
  expect_refused(R"({"conversations": [{"from": "human"}]})", {"message 0 has no \"value\""});
  expect_refused(R"({"conversations": [{"role": "user", "content": "u"}]})", {"no \"from\""});
}

TEST(Conversation, ARoleIsAUsualOneOrOneThatTheTemplateNames) {
  for (const char* role :
       {"system", "developer", "user", "assistant", "tool", "function", "ipython", "critic"}) {
    const ordered_json line = {{"messages", {{{"role", role}, {"content", "x"}}}}};
    EXPECT_EQ(read(line.dump()).messages().size(), 1U) << role;
  }
  expect_refused(R"({"messages": [{"role": "user", "content": ""}, {"role": "asistant"}]})",
                 {"message 1 has the role \"asistant\"", "system, developer, user"});
  expect_refused(R"({"messages": [{"role": "", "content": "x"}]})", {"the role \"\""});
}

TEST(Conversation, WhatIsNoneIsOneLine) {
  expect_refused("", {"not valid JSON"});
  expect_refused("{", {"not valid JSON"});
  expect_refused("[1]", {"is not an object", "JSON lines"});
  expect_refused("{\"messages\": [{\"role\": \"user\", \"content\": \"\xFF\"}]}", {"not UTF-8"});
  expect_refused("{}", {"has no \"messages\"; expected"});
  expect_refused(R"({"text": "x", "id": 1})", {"has no \"messages\" but \"text\", \"id\""});
  expect_refused(R"({"messages": null})", {"has no \"messages\""});
  expect_refused(R"({"messages": "x"})", {"\"messages\" is not a list"});
  expect_refused(R"({"messages": []})", {"has 0 messages; expected 1 to 4096"});
  expect_refused(R"({"messages": [3]})", {"message 0 is not an object"});
  expect_refused(R"({"messages": [{"content": "x"}]})", {"message 0 has no \"role\""});
  expect_refused(R"({"messages": [{"role": 3}]})", {"message 0 has another \"role\" than a text"});
  expect_refused(R"({"messages": [{"role": "user"}], "chat_template_kwargs": 3})",
                 {"\"chat_template_kwargs\" is not an object"});
  expect_refused(R"({"messages": [{"role": "user"}], "chat_template_kwargs": {"messages": []}})",
                 {"has \"messages\", which the line itself gives"});
}

TEST(Conversation, BeyondALimitIsOneLine) {
  ordered_json line = {{"messages", ordered_json::array()}};
  for (size_t i = 0; i <= kMaxMessages; ++i) {
    line["messages"].push_back({{"role", "user"}, {"content", ""}});
  }
  expect_refused(line.dump(), {"has 4097 messages; expected 1 to 4096"});
  expect_refused(std::string(kMaxConversationBytes + 1, ' '), {"expected at most 16777216"});
  std::string deep = R"({"messages": [{"role": "user", "content": )";
  deep += std::string(100, '[') + std::string(100, ']') + "}]}";
  expect_refused(deep, {"more than 64 deep"});
}

Preference read_pair(std::string_view line) {
  return read_preference(line, kTemplate, "a.jsonl:7");
}

void expect_pair_refused(std::string_view line, const std::string& part) {
  expect_config_error([&] { read_pair(line); }, {"a.jsonl:7", part});
}

TEST(PreferenceLine, IsAPromptWithTwoAnswers) {
  const Preference pair = read_pair(
      R"({"prompt": [{"role": "user", "content": "u"}], "id": 3,
          "chosen": [{"role": "assistant", "content": "a"}],
          "rejected": [{"role": "assistant", "content": "b"}], "tools": [{"x": 1}]})");
  EXPECT_FALSE(pair.is_text());
  EXPECT_EQ(pair.num_prompt, 1U);
  EXPECT_EQ(pair.chosen.messages().dump(),
            R"([{"role":"user","content":"u"},{"role":"assistant","content":"a"}])");
  EXPECT_EQ(pair.rejected.messages().dump(),
            R"([{"role":"user","content":"u"},{"role":"assistant","content":"b"}])");
  EXPECT_TRUE(pair.rejected.has_tools());
}

TEST(PreferenceLine, ThePromptMayBeWhatBothBeginWith) {
  const Preference pair = read_pair(
      R"({"chosen": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"},
                     {"role": "assistant", "content": "a"}],
          "rejected": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"},
                       {"role": "assistant", "content": "b"}]})");
  EXPECT_EQ(pair.num_prompt, 2U);
  EXPECT_EQ(pair.chosen.messages().size(), 3U);
}

TEST(PreferenceLine, MayBeTexts) {
  const Preference pair = read_preference(
      R"({"prompt": "The sky is", "chosen": " blue.", "rejected": " green."})", "", "a.jsonl:7");
  EXPECT_TRUE(pair.is_text());
  EXPECT_EQ(pair.prompt + pair.chosen_text + pair.rejected_text, "The sky is blue. green.");
}

TEST(PreferenceLine, AnythingElseIsRefusedInOneLine) {
  const std::string user = R"({"role": "user", "content": "u"})";
  const std::string a = R"({"role": "assistant", "content": "a"})";
  expect_pair_refused("[]", "is not an object");
  expect_pair_refused(R"({"prompt": "p", "chosen": "c"})",
                      "has no \"rejected\" but \"prompt\", \"chosen\"");
  expect_pair_refused(R"({"chosen": "c", "rejected": "r"})", "has no \"prompt\"");
  expect_pair_refused(R"({"prompt": "p", "chosen": "c", "rejected": []})",
                      "\"rejected\" is not a text");
  expect_pair_refused(R"({"prompt": "p", "chosen": "", "rejected": "r"})", "\"chosen\" is empty");
  expect_pair_refused(R"({"prompt": "p", "chosen": "r", "rejected": "r"})", "are the same");
  expect_pair_refused(R"({"prompt": "p", "chosen": [)" + a + R"(], "rejected": [)" + user + "]}",
                      "\"prompt\" is not a list");
  expect_pair_refused(R"({"chosen": [)" + a + "]}", "has no \"rejected\"");
  expect_pair_refused(R"({"prompt": [)" + user + R"(], "chosen": [)" + a + R"(], "rejected": []})",
                      "\"rejected\" has 0 messages");
  expect_pair_refused(
      R"({"prompt": [)" + user + R"(], "chosen": [)" + a + R"(], "rejected": [)" + a + "]}",
      "are the same");
  expect_pair_refused(R"({"chosen": [)" + a + R"(], "rejected": [)" + user + "]}",
                      "begin with 0 messages that are the same");
  expect_pair_refused(R"({"chosen": [)" + user + "," + a + R"(], "rejected": [)" + user + "]}",
                      "begin with 1 messages that are the same");
  expect_pair_refused(R"({"prompt": [)" + user + R"(], "chosen": [{"role": "wizard"}],
                         "rejected": [)" +
                          a + "]}",
                      "message 1 has the role \"wizard\"");
  expect_config_error([&] { read_preference(R"({"chosen": [)" + a + "]}", "", "a.jsonl:7"); },
                      {"a.jsonl:7", "the model has no chat template"});
}

}  // namespace
}  // namespace trireme::dataset
