// Turns a conversation into tokens, and says which of them the assistant says.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/dataset/byte_level/byte_level_bpe.h"
#include "trireme/dataset/conversation/chat_format.h"
#include "trireme/dataset/conversation/conversation.h"

namespace trireme::dataset {

struct ChatTokens {
  std::vector<int32_t> tokens;
  std::vector<int32_t> learnt;  // 1: the assistant says it; 0
};

// Thread safe once constructed.
class ChatEncoder {
 public:
  // end_of_document: the content of the added token that ends a text; "": the model's eos_token, or
  //                  without one as find_end_of_document()
  // now:             the local time, for templates that print it
  // Throws: ConfigError when the tokenizer is damaged, of another kind, or lacks that token
  ChatEncoder(ChatFormat format, const std::string& end_of_document,
              std::optional<std::chrono::local_seconds> now = {});

  int64_t vocab_size() const { return bpe_.vocab_size(); }
  // The token that ends a text.
  int32_t end_of_document() const { return bpe_.end_of_document(); }
  const ChatFormat& format() const { return format_; }

  // The tokens are those of the whole conversation, rendered; added tokens in it are one each. The
  // assistant says what stands in {% generation %}. A template without that is rendered for each
  // message of the assistant up to it, and up to before it with add_generation_prompt: what the
  // first text has more than the second is what the assistant says. All tokens that hold a
  // character of it count, from the one with the first character to the one in which the last
  // character begins, as in transformers.
  // where: begins every message
  // Throws: ConfigError when the template refuses the conversation, when a text does not begin
  //         with the one before, or when all these texts together exceed a limit
  ChatTokens encode(const Conversation& conversation, const std::string& where) const;

  // The tokens of a conversation that the assistant continues: rendered with add_generation_prompt.
  // Throws: ConfigError when the template refuses the conversation
  std::vector<int32_t> encode_prompt(const Conversation& conversation,
                                     const std::string& where) const;

  // The tokens of encode(). Of them the answer counts: what the whole text has more than the first
  // `num_prompt` messages rendered with add_generation_prompt.
  // Throws: ConfigError also when the text does not begin with these, or has nothing more
  ChatTokens encode_answer(const Conversation& conversation, size_t num_prompt,
                           const std::string& where) const;
  // Plain text and its end of document. The answer, which follows the prompt, and the end count.
  // Throws: ConfigError when the text cannot be encoded
  ChatTokens encode_answer(const std::string& prompt, const std::string& answer,
                           const std::string& where) const;

 private:
  using Spans = std::vector<std::pair<size_t, size_t>>;

  ChatTemplate::Rendered render(const Conversation& conversation, size_t num_messages,
                                bool add_prompt, const std::string& where) const;
  // The tokens of a text, and which of them hold a character of the spans.
  ChatTokens tokens_of(const std::string& text, const Spans& spans, const std::string& where) const;
  Spans added_by_assistant(const Conversation& conversation, const std::string& whole,
                           const std::string& where) const;

  ChatFormat format_;
  ByteLevelBpe bpe_;
  std::optional<std::chrono::local_seconds> now_;
};

}  // namespace trireme::dataset
