#include "trireme/dataset/conversation/chat_format.h"

#include "tests/dataset/conversation/chat_folder.h"

namespace trireme::dataset {
namespace {

using nlohmann::ordered_json;

class ChatFormatTest : public testing::Test {
 protected:
  ChatFormat read(const std::filesystem::path& given = {}) const {
    return read_chat_format({.tokenizer = folder_.path(), .chat_template = given});
  }
  std::string rendered(const ChatTemplate& chat) const {
    return chat.render({{"messages", ordered_json::array()}}).text;
  }
  TemporaryFolder folder_;
};

TEST_F(ChatFormatTest, IsReadFromTheFolderOrFromTheFile) {
  write_chat_folder(folder_.path(), "usual");
  for (const auto& path : {folder_.path(), std::filesystem::path(folder_ / "tokenizer.json")}) {
    const ChatFormat format = read_chat_format({.tokenizer = path});
    EXPECT_EQ(rendered(format.chat), "usual");
    EXPECT_EQ(format.tokenizer, small_tokenizer_text());
    EXPECT_EQ(format.special_tokens.dump(), R"({"eos_token":"</s>"})");
    EXPECT_FALSE(format.chat_with_tools.has_value());
  }
}

TEST_F(ChatFormatTest, TheTemplateMayStandInTheTokenizersConfig) {
  write_chat_folder(folder_.path(), "", R"({"chat_template": "inside"})");
  EXPECT_EQ(rendered(read().chat), "inside");
  write_chat_folder(folder_.path(), "",
                    R"({"chat_template": [{"name": "default", "template": "a"},
                        {"name": "tool_use", "template": "b"}, {"name": "rag", "template": "{%"}]})");
  const ChatFormat format = read();
  EXPECT_EQ(rendered(format.chat_for(false)), "a");
  EXPECT_EQ(rendered(format.chat_for(true)), "b");
  write_chat_folder(folder_.path(), "outside", R"({"chat_template": "inside"})");
  EXPECT_EQ(rendered(read().chat), "outside");
  write_text(folder_.path() / "additional_chat_templates" / "tool_use.jinja", "tools");
  EXPECT_EQ(rendered(read().chat_for(true)), "tools");
}

TEST_F(ChatFormatTest, AGivenTemplateIsThatOfAllConversations) {
  write_chat_folder(folder_.path(), "outside");
  write_text(folder_.path() / "additional_chat_templates" / "tool_use.jinja", "tools");
  write_text(folder_.path() / "own.jinja", "own");
  const ChatFormat format = read(folder_.path() / "own.jinja");
  EXPECT_EQ(rendered(format.chat_for(false)), "own");
  EXPECT_EQ(rendered(format.chat_for(true)), "own");
}

TEST_F(ChatFormatTest, ASpecialTokenIsATextOrAnObjectInEitherFile) {
  write_chat_folder(folder_.path(), "x",
                    R"({"bos_token": {"content": "<s>", "lstrip": false}, "pad_token": null})");
  write_text(folder_.path() / "special_tokens_map.json",
             R"({"bos_token": "other", "eos_token": "</s>"})");
  EXPECT_EQ(read().special_tokens.dump(), R"({"bos_token":"<s>","eos_token":"</s>"})");
}

TEST_F(ChatFormatTest, IsFoundByAPrefixBesideAKnownTokenizer) {
  const std::string prefix = (folder_.path() / "model.").string();
  EXPECT_FALSE(find_chat_format(prefix, small_tokenizer_text()).has_value());
  write_text(prefix + "chat_template.jinja", "usual");
  write_text(prefix + "special_tokens_map.json", R"({"eos_token": "</s>"})");
  const auto format = find_chat_format(prefix, small_tokenizer_text());
  ASSERT_TRUE(format.has_value());
  EXPECT_EQ(rendered(format->chat), "usual");
  EXPECT_EQ(format->tokenizer, small_tokenizer_text());
  EXPECT_EQ(format->special_tokens.dump(), R"({"eos_token":"</s>"})");
}

TEST_F(ChatFormatTest, WhatIsMissingOrDamagedIsOneLine) {
  expect_config_error([&] { read(); }, {"tokenizer.json does not exist", "--tokenizer-model"});
  write_chat_folder(folder_.path(), "", "{}");
  expect_config_error([&] { read(); }, {"no chat template beside", "--chat-template"});
  expect_config_error([&] { read(folder_.path() / "none"); }, {"none does not exist"});
  write_chat_folder(folder_.path(), "", R"({"chat_template": 3})");
  expect_config_error([&] { read(); }, {"tokenizer_config.json: chat_template is 3"});
  write_chat_folder(folder_.path(), "", R"({"chat_template": [{"name": "rag", "template": ""}]})");
  expect_config_error([&] { read(); }, {"none of its 1 chat templates is named \"default\""});
  write_chat_folder(folder_.path(), "{% for %}");
  expect_config_error([&] { read(); }, {"chat_template.jinja: line 1 of the chat template"});
  write_chat_folder(folder_.path(), "x", "{");
  expect_config_error([&] { read(); }, {"tokenizer_config.json: the text is not valid JSON"});
}

}  // namespace
}  // namespace trireme::dataset
