// A conversation as a line of JSON: what a chat template is rendered with.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace trireme::dataset {

// A line has at most so many bytes, and a conversation so many messages. They bound the memory and,
// with the limits of a template, the time that one line takes.
inline constexpr size_t kMaxConversationBytes = size_t{16} << 20;
inline constexpr size_t kMaxMessages = 4096;

struct Conversation {
  // `messages`, which is a list of objects that each have a role, without members that are null;
  // `tools` if the line has them; and the members of its `chat_template_kwargs`.
  nlohmann::ordered_json variables;

  const nlohmann::ordered_json& messages() const { return variables.at("messages"); }
  bool has_tools() const { return variables.contains("tools"); }
};

// Reads an object with `messages`, a list of {"role", "content", ...}, or ShareGPT's
// `conversations`, a list of {"from", "value"}, where "human" is the user and "gpt" the assistant.
// `tools` may also be JSON in a text. Other members of the object are ignored.
// template_text: of the template that will render it. A role must be a usual one, which is system,
//                developer, user, assistant, tool, function or ipython, or one that it names
// where:         "chat.jsonl:7", begins every message
// Throws: ConfigError, one line, for anything else, and beyond a limit
Conversation read_conversation(std::string_view line, const std::string& template_text,
                               const std::string& where);

}  // namespace trireme::dataset
