// What a trained model reads of a conversation that it is to continue: its text by the chat
// template that the run has kept, up to where the assistant's answer begins, as tokens.
// In a build without PCRE2 and utf8proc the constructor says what is missing.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/tokenizer.h"

namespace trireme::dataset {

class ChatEncoder;

// Now, here: for templates that print the date.
std::chrono::local_seconds local_time();

// Thread safe once constructed.
class ChatPrompts {
 public:
  // prefix: of the paths of the template and of what says the special tokens' names, as
  //         find_chat_format() reads them
  // now:    the local time, for templates that print it
  // Throws: ConfigError when there is no template or it is not one, or the tokenizer is not of a
  //         tokenizer.json
  ChatPrompts(const std::string& prefix, const Tokenizer& tokenizer,
              std::chrono::local_seconds now);
  ~ChatPrompts();
  ChatPrompts(const ChatPrompts&) = delete;
  ChatPrompts& operator=(const ChatPrompts&) = delete;

  // conversation: an object as read_conversation() takes it
  // where:        begins every message
  // Throws:       ConfigError, one line, when it is none or the template refuses it
  std::vector<int32_t> encode(std::string_view conversation, const std::string& where) const;

 private:
  std::unique_ptr<ChatEncoder> encoder_;
};

}  // namespace trireme::dataset
