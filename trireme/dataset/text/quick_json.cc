#include "trireme/dataset/text/quick_json.h"

#ifdef TRIREME_HAVE_SIMDJSON

#include <algorithm>
#include <vector>

#include <simdjson.h>

namespace trireme::dataset {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

// What parse_json() refuses and simdjson takes.
class Check {
 public:
  explicit Check(size_t max_values) : values_left_(max_values) {}

  bool takes(const element& value) {
    if (values_left_ == 0) return false;
    --values_left_;
    if (value.is_array()) {
      for (const element& item : simdjson::dom::array(value))
        if (!takes(item)) return false;
    } else if (value.is_object()) {
      return takes(object(value));
    }
    return true;
  }

 private:
  bool takes(const object& members) {
    const size_t first = keys_.size();
    for (const auto& [key, value] : members) {
      keys_.push_back(key);
      if (!takes(value)) return false;
    }
    const auto begin = keys_.begin() + static_cast<std::ptrdiff_t>(first);
    std::sort(begin, keys_.end());
    const bool has_twice = std::adjacent_find(begin, keys_.end()) != keys_.end();
    keys_.resize(first);
    return !has_twice;
  }

  size_t values_left_;
  std::vector<std::string_view> keys_{};  // of the objects around the value
};

// As TextKey::text_of() finds it.
std::optional<element> find(const object& row, std::string_view name) {
  element found;
  if (row.at_key(name).get(found) == simdjson::SUCCESS) return found;
  object around = row;
  while (true) {
    const std::string_view part = name.substr(0, name.find('.'));
    if (around.at_key(part).get(found) != simdjson::SUCCESS) return std::nullopt;
    if (part.size() == name.size()) return found;
    name.remove_prefix(part.size() + 1);
    if (found.get(around) != simdjson::SUCCESS) return std::nullopt;
  }
}

}  // namespace

std::optional<std::string> quick_text(std::string_view line, std::string_view name,
                                      size_t max_depth, size_t max_values) {
  if (line.size() > kMaxQuickBytes) return std::nullopt;
  thread_local simdjson::dom::parser parser;
  if (parser.capacity() < line.size() || parser.max_depth() != max_depth) {
    const size_t capacity = std::max(size_t{64} << 10, line.size() * 5 / 4);
    if (parser.allocate(std::min(capacity, kMaxQuickBytes), max_depth) != simdjson::SUCCESS)
      return std::nullopt;
  }
  element row;
  if (parser.parse(line.data(), line.size(), /*realloc_if_needed=*/true).get(row) !=
      simdjson::SUCCESS)
    return std::nullopt;
  object members;
  if (row.get(members) != simdjson::SUCCESS || !Check(max_values).takes(row)) return std::nullopt;
  const std::optional<element> found = find(members, name);
  std::string_view text;
  if (!found || found->get(text) != simdjson::SUCCESS) return std::nullopt;
  return std::string(text);
}

}  // namespace trireme::dataset

#else

namespace trireme::dataset {

std::optional<std::string> quick_text(std::string_view, std::string_view, size_t, size_t) {
  return std::nullopt;
}

}  // namespace trireme::dataset

#endif
