#include "trireme/dataset/conversation/chat_encoder.h"

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"

namespace trireme::dataset {
namespace {

using nlohmann::ordered_json;

// Of the texts of one conversation, which are as many as the assistant has messages.
constexpr size_t kMaxRenderedBytes = size_t{256} << 20;

std::string end_of_text(const ChatFormat& format, const std::string& given,
                        const TokenizerFile& file) {
  if (!given.empty()) return given;
  const auto found = format.special_tokens.find("eos_token");
  if (found == format.special_tokens.end()) return "";
  const auto& name = found->get_ref<const std::string&>();
  const bool is_there =
      std::ranges::find(file.added, name, &AddedToken::content) != file.added.end();
  return is_there ? name : "";
}

ByteLevelBpe make_bpe(const ChatFormat& format, const std::string& end_of_document) {
  TokenizerFile file = read_tokenizer_file(format.tokenizer, format.tokenizer_path);
  const int32_t end = find_end_of_document(file.added, end_of_text(format, end_of_document, file),
                                           format.tokenizer_path);
  return {std::move(file), end, format.tokenizer_path, UsualEnd::kIsToken};
}

// Where the last character before `end` begins.
size_t last_character(std::string_view text, size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

}  // namespace

ChatEncoder::ChatEncoder(ChatFormat format, const std::string& end_of_document,
                         std::optional<std::chrono::local_seconds> now)
    : format_(std::move(format)), bpe_(make_bpe(format_, end_of_document)), now_(now) {}

ChatTemplate::Rendered ChatEncoder::render(const Conversation& conversation, size_t num_messages,
                                           bool add_prompt, const std::string& where) const {
  ordered_json variables = format_.special_tokens;
  for (const auto& [name, value] : conversation.variables.items()) {
    if (name != "messages") variables[name] = value;
  }
  const ordered_json& messages = conversation.messages();
  variables["messages"] =
      ordered_json(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(num_messages));
  variables["add_generation_prompt"] = add_prompt;
  try {
    return format_.chat_for(conversation.has_tools()).render(variables, now_);
  } catch (const ConfigError& error) {
    throw ConfigError(concat(where, ": ", error.what()));
  }
}

ChatEncoder::Spans ChatEncoder::added_by_assistant(const Conversation& conversation,
                                                   const std::string& whole,
                                                   const std::string& where) const {
  const ordered_json& messages = conversation.messages();
  size_t num_bytes = 0;
  // What `longer` has more than `shorter`.
  const auto require_prefix = [&](const std::string& longer, const std::string& shorter, size_t i,
                                  const char* what) {
    TRIREME_CHECK(longer.starts_with(shorter), where,
                  ": the chat template does not render message ", i, " as an addition to ", what,
                  ", so what the assistant says is not known; mark it with {% generation %} in a "
                  "copy of the template and give that with --chat-template");
    num_bytes += shorter.size();
    TRIREME_CHECK(num_bytes <= kMaxRenderedBytes, where,
                  ": its texts up to each message have more "
                  "than ",
                  kMaxRenderedBytes,
                  " bytes; cut the conversation, or mark what the "
                  "assistant says with {% generation %} in a copy of the template");
  };
  Spans spans;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].at("role") != "assistant") continue;
    const std::string before = render(conversation, i, true, where).text;
    const std::string with =
        i + 1 == messages.size() ? whole : render(conversation, i + 1, false, where).text;
    require_prefix(with, before, i, "the messages before it and a generation prompt");
    require_prefix(whole, with, i, "which the messages behind it are added");
    spans.emplace_back(before.size(), with.size());
  }
  return spans;
}

ChatTokens ChatEncoder::encode(const Conversation& conversation, const std::string& where) const {
  const size_t num_messages = conversation.messages().size();
  ChatTemplate::Rendered rendered = render(conversation, num_messages, false, where);
  const std::string& text = rendered.text;
  const bool is_marked = format_.chat_for(conversation.has_tools()).marks_generation();
  const Spans spans =
      is_marked ? std::move(rendered.generated) : added_by_assistant(conversation, text, where);
  return tokens_of(text, spans, where);
}

std::vector<int32_t> ChatEncoder::encode_prompt(const Conversation& conversation,
                                                const std::string& where) const {
  const size_t num_messages = conversation.messages().size();
  return tokens_of(render(conversation, num_messages, true, where).text, {}, where).tokens;
}

ChatTokens ChatEncoder::encode_answer(const Conversation& conversation, size_t num_prompt,
                                      const std::string& where) const {
  const std::string prompt = render(conversation, num_prompt, true, where).text;
  const std::string whole = render(conversation, conversation.messages().size(), false, where).text;
  TRIREME_CHECK(whole.starts_with(prompt) && whole.size() > prompt.size(), where,
                ": the chat template does not render the answer as an addition to the prompt's ",
                num_prompt,
                " messages and a generation prompt, so its tokens are not known; change a copy of "
                "the template and give that with --chat-template");
  return tokens_of(whole, {{prompt.size(), whole.size()}}, where);
}

ChatTokens ChatEncoder::encode_answer(const std::string& prompt, const std::string& answer,
                                      const std::string& where) const {
  const std::string whole = prompt + answer;
  ChatTokens tokens = tokens_of(whole, {{prompt.size(), whole.size()}}, where);
  tokens.tokens.push_back(end_of_document());
  tokens.learnt.push_back(1);
  return tokens;
}

ChatTokens ChatEncoder::tokens_of(const std::string& text, const Spans& spans,
                                  const std::string& where) const {
  // Two for each span, in their order: where it begins, and where its last character does.
  std::vector<size_t> characters;
  for (const auto& [begin, end] : spans) {
    if (begin == end) continue;
    characters.push_back(begin);
    characters.push_back(last_character(text, end));
  }
  ChatTokens result;
  std::vector<size_t> holders;
  try {
    result.tokens = bpe_.encode(text, characters, holders);
  } catch (const ConfigError& error) {
    throw ConfigError(concat(where, ": ", error.what()));
  }
  result.learnt.resize(result.tokens.size());
  for (size_t i = 0; i < holders.size(); i += 2) {
    std::fill(result.learnt.begin() + static_cast<std::ptrdiff_t>(holders[i]),
              result.learnt.begin() + static_cast<std::ptrdiff_t>(holders[i + 1]) + 1, 1);
  }
  return result;
}

}  // namespace trireme::dataset
