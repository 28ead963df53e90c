#include "trireme/dataset/text/json_text.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/dataset/text/quick_json.h"

namespace trireme::dataset {
namespace {

// Rows of web pages have metadata, which may be nested.
constexpr JsonLimits kTextRowLimits{.max_bytes = kMaxTextRowBytes, .max_depth = 64};

constexpr const char* kAdvice = "; name the member that has the text with --text-key";

template <typename Json>
std::string lacks(const Json& object, std::string_view name) {
  std::string keys;
  for (const auto& [key, value] : object.items()) {
    if (keys.size() > 100) break;
    keys += concat(keys.empty() ? "" : ", ", in_quotes(key, 30));
  }
  return concat(" has no ", in_quotes(name, 60), keys.empty() ? "" : concat(" but ", keys));
}

}  // namespace

std::string lacks_member(const nlohmann::json& object, std::string_view name) {
  return lacks(object, name);
}

std::string lacks_member(const nlohmann::ordered_json& object, std::string_view name) {
  return lacks(object, name);
}

TextKey::TextKey(std::string name) : name_(std::move(name)) {
  const std::string_view dots = name_;
  TRIREME_CHECK(!name_.empty() && is_printable(name_, kMaxWordBytes) && !dots.starts_with('.') &&
                    !dots.ends_with('.') && dots.find("..") == std::string_view::npos,
                "--text-key is ", in_quotes(name_, 60),
                "; expected the name of a member such as \"text\", or names with a dot between "
                "them such as \"data.text\"");
}

std::string_view TextKey::text_in(std::span<char> line,
                                  const std::function<std::string()>& where) const {
  // simdjson may count depth by one more.
  if (const auto text =
          quick_text(line, name_, kTextRowLimits.max_depth - 1, kTextRowLimits.max_values))
    return *text;
  const std::string text = explained_text({line.data(), line.size()}, where());
  TRIREME_ASSERT(text.size() <= line.size(), "a text of ", text.size(), " bytes");
  std::ranges::copy(text, line.begin());
  return {line.data(), text.size()};
}

std::string TextKey::explained_text(std::string_view line, const std::string& where) const {
  nlohmann::json row = parse_json(line, where, kTextRowLimits);
  TRIREME_CHECK(row.is_object(), where, " is not an object; expected one with ",
                in_quotes(name_, 60), " in each line (JSON lines)");
  nlohmann::json* value = &row;
  if (const auto whole = row.find(name_); whole != row.end()) {
    value = &*whole;
  } else {
    std::string_view rest = name_;
    while (value->is_object()) {
      const std::string_view part = rest.substr(0, rest.find('.'));
      const auto found = value->find(std::string(part));
      TRIREME_CHECK(found != value->end(), where,
                    value == &row ? "" : concat(": ", in_quotes(name_, 60), ": its object"),
                    lacks_member(*value, part), kAdvice);
      value = &*found;
      if (part.size() == rest.size()) break;
      rest.remove_prefix(part.size() + 1);
      TRIREME_CHECK(value->is_object(), where, ": ", in_quotes(part, 60), " is ",
                    value->type_name(), "; expected an object with ", in_quotes(rest, 60), kAdvice);
    }
  }
  TRIREME_CHECK(value->is_string(), where, ": ", in_quotes(name_, 60), " is ", value->type_name(),
                "; expected a text", kAdvice);
  return std::move(value->get_ref<std::string&>());
}

}  // namespace trireme::dataset
