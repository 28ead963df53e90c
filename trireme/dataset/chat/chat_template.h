// Renders a conversation with the chat template of a Hugging Face model, a Jinja template that
// comes with its tokenizer. The text is what the package `transformers` renders, byte for byte, or
// there is an error: the template may come from anywhere, so it reads no files, changes nothing,
// and its time and memory are bounded.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trireme/dataset/chat/values/run.h"

namespace trireme::dataset {

namespace chat {
struct Program;
}

// Thread safe once constructed.
class ChatTemplate {
 public:
  struct Rendered {
    std::string text;
    // The bytes of `text`, [begin, end), that stand inside of {% generation %}: what the assistant
    // says. In the order of the text.
    std::vector<std::pair<size_t, size_t>> generated;
  };

  // `source`, a path for example, begins every message.
  // Throws: ConfigError with source, line and what is wrong, when the template is not well formed,
  //         exceeds a limit, or uses what is not supported
  ChatTemplate(std::string_view text, std::string source, const ChatTemplateLimits& limits = {});

  // `variables` is an object with what the template sees: messages, a list of objects; tools,
  // documents and add_generation_prompt, which are null, null and false by default; the special
  // tokens, such as bos_token; and whatever else the template asks for. `now` is the local time
  // that strftime_now formats. A message's reasoning is found under each of the names
  // reasoning_content, thinking and reasoning, whichever it came under.
  // Throws: ConfigError with source, line and what is wrong, when there are no messages, the
  //         template refuses them or fails, or a limit is exceeded
  Rendered render(const nlohmann::ordered_json& variables,
                  std::optional<std::chrono::local_seconds> now = {}) const;

  // Whether it says itself what the assistant says, with {% generation %}.
  bool marks_generation() const;

 private:
  std::string source_;
  ChatTemplateLimits limits_;
  std::shared_ptr<const chat::Program> program_;
};

}  // namespace trireme::dataset
