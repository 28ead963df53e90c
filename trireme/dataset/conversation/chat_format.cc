#include "trireme/dataset/conversation/chat_format.h"

#include <utility>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/file/as_config_error.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr uint64_t kMaxTokenizerFileBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxFormatFileBytes = uint64_t{16} << 20;

constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

std::string read_format_file(const fs::path& path, uint64_t max_bytes = kMaxFormatFileBytes) {
  return as_config_error([&] { return read_file(path, max_bytes); });
}

fs::path tokenizer_file(const fs::path& given) {
  std::error_code unknown;
  const bool is_folder = fs::is_directory(given, unknown);
  const fs::path file = is_folder ? given / "tokenizer.json" : given;
  TRIREME_CHECK(is_file(file), "tokenizer ", file.string(), " does not exist; expected ",
                is_folder ? "a folder of transformers with a tokenizer.json"
                          : "a tokenizer.json, or the folder of a model",
                ": give it with --tokenizer-model");
  return file;
}

// A token is its text, or an object with it.
void take_special_tokens(const fs::path& path, ordered_json& tokens) {
  if (!is_file(path)) return;
  const std::string source = path.string();
  const nlohmann::json value = parse_json(read_format_file(path), source);
  const JsonView root(value, source);
  for (const char* name : kSpecialTokens) {
    const auto found = root.find(name);
    if (!found || found->value().is_null() || tokens.contains(name)) continue;
    tokens[name] = found->value().is_object() ? found->at("content").text() : found->text();
  }
}

struct Template {
  std::string text{};
  std::string source{};
};

struct Templates {
  std::optional<Template> usual{};
  std::optional<Template> with_tools{};
};

Template read_template(const fs::path& path) { return {read_format_file(path), path.string()}; }

Templates templates_in_config(const fs::path& path) {
  Templates templates;
  if (!is_file(path)) return templates;
  const std::string source = path.string();
  const nlohmann::json value = parse_json(read_format_file(path), source);
  const auto found = JsonView(value, source).find("chat_template");
  if (!found || found->value().is_null()) return templates;
  if (!found->value().is_array()) {
    templates.usual = {found->text(), source};
    return templates;
  }
  for (const JsonView& named : found->elements()) {
    const std::string& name = named.at("name").text();
    if (name == "default") templates.usual = {named.at("template").text(), source};
    if (name == "tool_use") templates.with_tools = {named.at("template").text(), source};
  }
  TRIREME_CHECK(templates.usual.has_value(), source, ": none of its ", found->value().size(),
                " chat templates is named \"default\"; write the one to use into a file and give "
                "that with --chat-template");
  return templates;
}

// prefix: of the paths of the model's files
Templates find_templates(const ChatFormatFiles& files, const std::string& prefix) {
  if (!files.chat_template.empty()) {
    TRIREME_CHECK(is_file(files.chat_template), "chat template ", files.chat_template.string(),
                  " does not exist; give a file with --chat-template");
    return {.usual = read_template(files.chat_template)};
  }
  const fs::path usual = prefix + "chat_template.jinja";
  if (!is_file(usual)) return templates_in_config(prefix + "tokenizer_config.json");
  Templates templates{.usual = read_template(usual)};
  const fs::path tools = prefix + "additional_chat_templates/tool_use.jinja";
  if (is_file(tools)) templates.with_tools = read_template(tools);
  return templates;
}

ChatFormat format_of(Templates found, std::string tokenizer, std::string tokenizer_path,
                     const std::string& prefix) {
  ChatTemplate chat(found.usual->text, found.usual->source);
  ChatFormat format{.tokenizer = std::move(tokenizer),
                    .tokenizer_path = std::move(tokenizer_path),
                    .template_text = std::move(found.usual->text),
                    .chat = std::move(chat)};
  if (found.with_tools)
    format.chat_with_tools.emplace(found.with_tools->text, found.with_tools->source);
  take_special_tokens(prefix + "tokenizer_config.json", format.special_tokens);
  take_special_tokens(prefix + "special_tokens_map.json", format.special_tokens);
  return format;
}

}  // namespace

ChatFormat read_chat_format(const ChatFormatFiles& files) {
  const fs::path tokenizer = tokenizer_file(files.tokenizer);
  const std::string prefix = (tokenizer.parent_path() / "").string();
  Templates found = find_templates(files, prefix);
  if (!found.usual && files.may_lack_template) found.usual = Template{};
  TRIREME_CHECK(found.usual.has_value(), "there is no chat template beside ", tokenizer.string(),
                ": expected chat_template.jinja, or \"chat_template\" in tokenizer_config.json; "
                "give a file with --chat-template");
  return format_of(std::move(found), read_format_file(tokenizer, kMaxTokenizerFileBytes),
                   tokenizer.string(), prefix);
}

std::optional<ChatFormat> find_chat_format(const std::string& prefix, std::string tokenizer) {
  Templates found = find_templates({}, prefix);
  if (!found.usual) return std::nullopt;
  return format_of(std::move(found), std::move(tokenizer), "the model's tokenizer", prefix);
}

}  // namespace trireme::dataset
