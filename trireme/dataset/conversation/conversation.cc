#include "trireme/dataset/conversation/conversation.h"

#include <algorithm>
#include <utility>

#include "trireme/base/bounded_json.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/dataset/text/json_text.h"

namespace trireme::dataset {
namespace {

using nlohmann::ordered_json;

// Arguments of tools may be nested, and a template has its own limit (chat::kMaxValueDepth).
constexpr JsonLimits kConversationLimits{.max_bytes = kMaxConversationBytes, .max_depth = 64};

constexpr std::string_view kRoles[] = {"system", "developer", "user",   "assistant",
                                       "tool",   "function",  "ipython"};
// ShareGPT's names that are not the roles themselves.
constexpr std::pair<std::string_view, std::string_view> kShareGptRoles[] = {{"human", "user"},
                                                                            {"gpt", "assistant"}};

bool is_named_in(const std::string& template_text, const std::string& role) {
  return template_text.find(concat('\'', role, '\'')) != std::string::npos ||
         template_text.find(concat('"', role, '"')) != std::string::npos;
}

const std::string& text_member(const ordered_json& message, const char* name, size_t index,
                               const std::string& where) {
  const auto found = message.find(name);
  TRIREME_CHECK(found != message.end() && found->is_string(), where, ": message ", index,
                found == message.end() ? " has no \"" : " has another \"", name,
                found == message.end() ? "\"" : "\" than a text", "; expected an object with \"",
                name, "\", a text");
  return found->get_ref<const std::string&>();
}

ordered_json from_share_gpt(const ordered_json& turns, const std::string& where) {
  ordered_json messages = ordered_json::array();
  for (const ordered_json& turn : turns) {
    const size_t index = messages.size();
    TRIREME_CHECK(turn.is_object(), where, ": message ", index, " is not an object");
    std::string role = text_member(turn, "from", index, where);
    const auto known = std::ranges::find(kShareGptRoles, role,
                                         &std::pair<std::string_view, std::string_view>::first);
    if (known != std::end(kShareGptRoles)) role = known->second;
    messages.push_back({{"role", role}, {"content", text_member(turn, "value", index, where)}});
  }
  return messages;
}

// transformers does so before it renders: a template would print a null.
void leave_nulls_out(ordered_json& messages) {
  for (ordered_json& message : messages) {
    ordered_json kept = ordered_json::object();
    for (auto& [name, value] : message.items()) {
      if (!value.is_null()) kept[name] = std::move(value);
    }
    message = std::move(kept);
  }
}

void check_messages(const ordered_json& messages, const std::string& template_text,
                    const std::string& where) {
  for (size_t i = 0; i < messages.size(); ++i) {
    TRIREME_CHECK(messages[i].is_object(), where, ": message ", i, " is not an object");
    const std::string& role = text_member(messages[i], "role", i, where);
    TRIREME_CHECK(
        std::ranges::find(kRoles, role) != std::end(kRoles) || is_named_in(template_text, role),
        where, ": message ", i, " has the role ", in_quotes(role, 60), "; expected ",
        in_words({std::begin(kRoles), std::end(kRoles)}), ", or one that the chat template names");
  }
}

const ordered_json* list_of(const ordered_json& object, const char* name,
                            const std::string& where) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return nullptr;
  TRIREME_CHECK(found->is_array(), where, ": \"", name,
                "\" is not a list; expected a list of objects");
  TRIREME_CHECK(!found->empty() && found->size() <= kMaxMessages, where, ": \"", name, "\" has ",
                found->size(), " messages; expected 1 to ", kMaxMessages,
                ": leave the line out, or cut the conversation");
  return &*found;
}

void take_tools(const ordered_json& object, const std::string& where, ordered_json& variables) {
  const auto found = object.find("tools");
  if (found == object.end() || found->is_null()) return;
  ordered_json tools = found->is_string()
                           ? parse_ordered_json(found->get_ref<const std::string&>(),
                                                concat(where, ": \"tools\""), kConversationLimits)
                           : *found;
  TRIREME_CHECK(tools.is_array(), where,
                ": \"tools\" is not a list; expected a list of objects, or "
                "the same as a text");
  variables["tools"] = std::move(tools);
}

// A conversation of these messages, with what else `object` has for the template.
Conversation with_variables(const ordered_json& object, ordered_json messages,
                            const std::string& template_text, const std::string& where) {
  Conversation conversation;
  ordered_json& variables = conversation.variables = ordered_json::object();
  variables["messages"] = std::move(messages);
  check_messages(variables["messages"], template_text, where);
  leave_nulls_out(variables["messages"]);
  take_tools(object, where, variables);
  const auto options = object.find("chat_template_kwargs");
  if (options == object.end() || options->is_null()) return conversation;
  TRIREME_CHECK(options->is_object(), where,
                ": \"chat_template_kwargs\" is not an object; expected the template's variables");
  for (const auto& [name, value] : options->items()) {
    TRIREME_CHECK(!variables.contains(name), where, ": \"chat_template_kwargs\" has ",
                  in_quotes(name, 60), ", which the line itself gives; leave it out there");
    variables[name] = value;
  }
  return conversation;
}

// Three texts.
Preference text_preference(const ordered_json& object, const std::string& where) {
  const auto text_of = [&](const char* name) {
    const auto found = object.find(name);
    TRIREME_CHECK(found != object.end() && found->is_string(), where,
                  found == object.end() ? lacks_member(object, name)
                                        : concat(": \"", name, "\" is not a text"),
                  "; expected \"prompt\", \"chosen\" and \"rejected\", all texts or all lists of "
                  "messages");
    return found->get<std::string>();
  };
  Preference pair{.prompt = text_of("prompt"),
                  .chosen_text = text_of("chosen"),
                  .rejected_text = text_of("rejected")};
  for (const auto& [name, text] :
       {std::pair("chosen", &pair.chosen_text), {"rejected", &pair.rejected_text}}) {
    TRIREME_CHECK(!text->empty(), where, ": \"", name,
                  "\" is empty; expected an answer to the prompt");
  }
  TRIREME_CHECK(pair.chosen_text != pair.rejected_text, where,
                ": \"chosen\" and \"rejected\" are the same; expected two answers");
  return pair;
}

}  // namespace

Conversation read_conversation(std::string_view line, const std::string& template_text,
                               const std::string& where) {
  const ordered_json object = parse_ordered_json(line, where, kConversationLimits);
  TRIREME_CHECK(object.is_object(), where,
                " is not an object; expected one with \"messages\" in "
                "each line (JSON lines)");
  if (const ordered_json* const messages = list_of(object, "messages", where)) {
    return with_variables(object, *messages, template_text, where);
  }
  if (const ordered_json* const turns = list_of(object, "conversations", where)) {
    return with_variables(object, from_share_gpt(*turns, where), template_text, where);
  }
  throw ConfigError(concat(where, lacks_member(object, "messages"),
                           "; expected a list of {\"role\": ..., \"content\": ...}"));
}

Preference read_preference(std::string_view line, const std::string& template_text,
                           const std::string& where) {
  const ordered_json object = parse_ordered_json(line, where, kConversationLimits);
  TRIREME_CHECK(object.is_object(), where,
                " is not an object; expected one with \"prompt\", \"chosen\" and \"rejected\" in "
                "each line (JSON lines)");
  const auto chosen = object.find("chosen");
  if (chosen == object.end() || !chosen->is_array()) return text_preference(object, where);
  TRIREME_CHECK(!template_text.empty(), where,
                ": \"chosen\" is a list of messages, and the model has no chat template; give one "
                "with --chat-template, or texts");
  const ordered_json* const first = list_of(object, "chosen", where);
  const ordered_json* const second = list_of(object, "rejected", where);
  TRIREME_CHECK(second != nullptr, where, lacks_member(object, "rejected"),
                "; expected a list of messages, as \"chosen\" is");
  ordered_json with_chosen = ordered_json::array(), with_rejected = ordered_json::array();
  Preference pair;
  if (const ordered_json* const prompt = list_of(object, "prompt", where)) {
    with_chosen = with_rejected = *prompt;
    pair.num_prompt = prompt->size();
  }
  with_chosen.insert(with_chosen.end(), first->begin(), first->end());
  with_rejected.insert(with_rejected.end(), second->begin(), second->end());
  TRIREME_CHECK(with_chosen != with_rejected, where,
                ": \"chosen\" and \"rejected\" are the same; expected two answers");
  if (pair.num_prompt == 0) {
    const size_t shortest = std::min(with_chosen.size(), with_rejected.size());
    while (pair.num_prompt < shortest &&
           with_chosen[pair.num_prompt] == with_rejected[pair.num_prompt]) {
      ++pair.num_prompt;
    }
    TRIREME_CHECK(pair.num_prompt > 0 && pair.num_prompt < shortest, where,
                  ": \"chosen\" and \"rejected\" begin with ", pair.num_prompt,
                  " messages that are the same; expected a prompt and an answer in each, or a "
                  "\"prompt\" of its own");
  }
  pair.chosen = with_variables(object, std::move(with_chosen), template_text, where);
  pair.rejected = with_variables(object, std::move(with_rejected), template_text, where);
  return pair;
}

}  // namespace trireme::dataset
