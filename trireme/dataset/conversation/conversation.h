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

// The members of a line that read_conversation() and images_of_line() look at, and those of
// read_preference(): columns of a file that has rows.
inline constexpr std::string_view kConversationMembers[] = {
    "messages", "conversations", "tools", "chat_template_kwargs", "image", "images"};
inline constexpr std::string_view kPreferenceMembers[] = {"prompt", "chosen", "rejected", "tools",
                                                          "chat_template_kwargs"};

// Two answers to one prompt.
struct Preference {
  // Conversations, each with the prompt's messages first; or else the texts below.
  Conversation chosen{};
  Conversation rejected{};
  size_t num_prompt = 0;  // messages of the prompt
  std::string prompt{};
  std::string chosen_text{};
  std::string rejected_text{};

  bool is_text() const { return chosen.variables.is_null(); }
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

// Reads an object with `prompt`, `chosen` and `rejected`, TRL's preference format: three lists of
// messages, or three texts. Without `prompt` the two lists are whole conversations, whose common
// beginning is the prompt. `tools` and `chat_template_kwargs` are as in read_conversation().
// template_text: "" when there is none, so that lists are an error
// Throws: ConfigError, one line, also for an answer of nothing and for two answers that are alike
Preference read_preference(std::string_view line, const std::string& template_text,
                           const std::string& where);

}  // namespace trireme::dataset
