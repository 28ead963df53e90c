#include "trireme/dataset/conversation/chat_prompts.h"

#include <ctime>
#include <optional>
#include <utility>

#include "trireme/base/error.h"

#ifdef TRIREME_HAVE_TOKENIZER_JSON
#include "trireme/dataset/conversation/chat_encoder.h"
#include "trireme/dataset/conversation/chat_format.h"
#include "trireme/dataset/conversation/conversation.h"
#endif

namespace trireme::dataset {

#ifndef TRIREME_HAVE_TOKENIZER_JSON

class ChatEncoder {};

ChatPrompts::ChatPrompts(const std::string&, const Tokenizer&, std::chrono::local_seconds) {
  make_json_tokenizer("", "");  // says what is missing
}

std::vector<int32_t> ChatPrompts::encode(std::string_view, const std::string&) const { return {}; }

#else

ChatPrompts::ChatPrompts(const std::string& prefix, const Tokenizer& tokenizer,
                         std::chrono::local_seconds now) {
  TRIREME_CHECK(tokenizer.kind() == TokenizerKind::kJson, "the model's tokenizer is of the kind ",
                name_of(kTokenizerKinds, tokenizer.kind()),
                ", which has no chat template; ask for completions of texts");
  const std::string file = tokenizer.serialize();
  std::optional<ChatFormat> format = find_chat_format(prefix, file);
  TRIREME_CHECK(format.has_value(), "the model has no chat template: expected ", prefix,
                "chat_template.jinja; ask for completions of texts");
  encoder_ = std::make_unique<ChatEncoder>(
      std::move(*format), spelled_end_of_document(file, tokenizer.end_of_document()), now);
}

std::vector<int32_t> ChatPrompts::encode(std::string_view conversation,
                                         const std::string& where) const {
  return encoder_->encode_prompt(
      read_conversation(conversation, encoder_->format().template_text, where), where);
}

#endif

ChatPrompts::~ChatPrompts() = default;

std::chrono::local_seconds local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return std::chrono::local_seconds(std::chrono::seconds(now + local.tm_gmtoff));
}

}  // namespace trireme::dataset
