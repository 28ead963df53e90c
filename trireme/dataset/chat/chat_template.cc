#include "trireme/dataset/chat/chat_template.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "trireme/dataset/chat/renderer.h"
#include "trireme/dataset/chat/syntax/parser.h"
#include "trireme/dataset/chat/values/json_text.h"

namespace trireme::dataset {

namespace {

using nlohmann::ordered_json;

// transformers hands reasoning under three names to templates, of which each reads another: the
// first that is there is `reasoning_content`, and `thinking` unless the message has that itself.
ordered_json with_reasoning(const ordered_json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    ordered_json extended = {{"thinking", *found}};
    for (const auto& [key, value] : message.items()) extended[key] = value;
    extended["reasoning_content"] = *found;
    return extended;
  }
  return message;
}

ordered_json checked_messages(const chat::Run& run, const ordered_json& variables) {
  const auto messages = variables.find("messages");
  if (messages == variables.end() || !messages->is_array()) {
    run.fail("is rendered without messages; pass a list of objects as messages");
  }
  ordered_json checked = ordered_json::array();
  for (const ordered_json& message : *messages) {
    if (!message.is_object()) run.fail("is rendered with a message that is not an object");
    checked.push_back(with_reasoning(message));
  }
  return checked;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view text, std::string source,
                           const ChatTemplateLimits& limits)
    : source_(std::move(source)), limits_(limits) {
  chat::Run run(source_, limits_);
  program_ = std::make_shared<const chat::Program>(chat::parse(run, text));
}

ChatTemplate::Rendered ChatTemplate::render(const ordered_json& variables,
                                            std::optional<std::chrono::local_seconds> now) const {
  chat::Run run(source_, limits_);
  if (!variables.is_object()) run.fail("is rendered with variables that are not an object");
  const ordered_json messages = checked_messages(run, variables);
  chat::Renderer renderer(run, *program_, now);
  const auto set = [&](const std::string& name, const ordered_json& value) {
    const auto found = std::ranges::find(program_->names, name);
    if (found == program_->names.end()) return;
    renderer.set(static_cast<size_t>(found - program_->names.begin()),
                 chat::from_json(run, value, name));
  };
  set("tools", nullptr);
  set("documents", nullptr);
  set("add_generation_prompt", false);
  for (const auto& [name, value] : variables.items()) {
    set(name, name == "messages" ? messages : value);
  }
  renderer.render();
  return {.text = renderer.take_text(), .generated = renderer.take_generated()};
}

bool ChatTemplate::marks_generation() const { return program_->has_generation; }

}  // namespace trireme::dataset
