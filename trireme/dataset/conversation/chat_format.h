// How a Hugging Face model writes conversations: its tokenizer, its chat template and the names of
// its special tokens, read from the folder of the model or from files given one by one.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "trireme/dataset/chat/chat_template.h"

namespace trireme::dataset {

struct ChatFormatFiles {
  std::filesystem::path tokenizer;        // a folder with a tokenizer.json, or that file
  std::filesystem::path chat_template{};  // empty: the template that is beside the tokenizer
  bool may_lack_template = false;         // then its text is empty, and it renders nothing
};

struct ChatFormat {
  std::string tokenizer;  // the text of tokenizer.json
  std::string tokenizer_path;
  std::string template_text;  // of `chat`
  ChatTemplate chat;
  // Of conversations with tools, when the model has another template for those.
  std::optional<ChatTemplate> chat_with_tools{};
  // The special tokens by the names that templates know them by, such as eos_token.
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();

  const ChatTemplate& chat_for(bool has_tools) const {
    return has_tools && chat_with_tools ? *chat_with_tools : chat;
  }
};

// Beside tokenizer.json it reads tokenizer_config.json and special_tokens_map.json, if they are
// there. The template is chat_template.jinja, with additional_chat_templates/tool_use.jinja for
// tools, or else that of tokenizer_config.json, which may be a list of named ones: of these it
// takes "default" and "tool_use". A given template is that of all conversations.
// Throws: ConfigError when a file is missing or damaged, when there is no template or it is not one
//         (ChatTemplate), or when the tokenizer is not a tokenizer.json
ChatFormat read_chat_format(const ChatFormatFiles& files);

// The same of a known tokenizer, the text of a tokenizer.json; `prefix` and a name are the path of
// each other file. Nothing when there is no template.
// Throws: ConfigError when a file is damaged or the template is not one
std::optional<ChatFormat> find_chat_format(const std::string& prefix, std::string tokenizer);

}  // namespace trireme::dataset
