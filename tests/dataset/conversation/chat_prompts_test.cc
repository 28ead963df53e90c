#include "trireme/dataset/conversation/chat_prompts.h"

#include <string>

#include "tests/dataset/conversation/chat_folder.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

class ChatPromptsTest : public testing::Test {
 protected:
  std::string prefix() const { return (folder_.path() / "hugging_face.").string(); }
  TemporaryFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = make_json_tokenizer(small_tokenizer_text(), "</s>");
};

TEST_F(ChatPromptsTest, AConversationIsThePromptOfItsAnswer) {
  write_text(prefix() + "chat_template.jinja", kPlainTemplate);
  write_text(prefix() + "tokenizer_config.json", R"({"eos_token": "</s>"})");
  const ChatPrompts prompts(prefix(), *tokenizer_, local_time());
  const std::vector<int32_t> found =
      prompts.encode(R"({"messages": [{"role": "user", "content": "a"}], "other": 1})", "it");
  std::vector<int32_t> expected = {kStart};
  for (const char c : std::string("user|a")) expected.push_back(c);
  expected.insert(expected.end(), {kEndOfTurn, kStart});
  for (const char c : std::string("assistant|")) expected.push_back(c);
  EXPECT_EQ(found, expected);
  for (const char* body : {"{}", R"({"messages": []})", R"({"messages": [{"content": "a"}]})", "["})
    EXPECT_THROW(prompts.encode(body, "it"), ConfigError) << body;
}

TEST_F(ChatPromptsTest, TheDateIsThatOfTheConstructor) {
  write_text(prefix() + "chat_template.jinja", "{{ strftime_now('%Y') }}");
  using namespace std::chrono;
  const ChatPrompts prompts(prefix(), *tokenizer_, local_days{year{2031} / 2 / 3});
  const auto tokens = prompts.encode(R"({"messages": [{"role": "user", "content": "a"}]})", "it");
  EXPECT_EQ(tokens, (std::vector<int32_t>{'2', '0', '3', '1'}));
}

TEST_F(ChatPromptsTest, AModelWithoutATemplateSaysSo) {
  const auto reason = [&](const Tokenizer& tokenizer) -> std::string {
    try {
      ChatPrompts(prefix(), tokenizer, local_time());
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(reason(*tokenizer_).find("chat_template.jinja"), std::string::npos);
  EXPECT_NE(reason(*make_bytes_tokenizer()).find("bytes"), std::string::npos);
}

}  // namespace
}  // namespace trireme::dataset
