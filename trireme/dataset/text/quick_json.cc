#include "trireme/dataset/text/quick_json.h"

#ifdef TRIREME_HAVE_SIMDJSON

#include <algorithm>
#include <vector>

#include <simdjson.h>

#include "trireme/dataset/text/json_text.h"

namespace trireme::dataset {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

// What parse_json() refuses and simdjson takes.
class Check {
 public:
  bool takes(const element& row, size_t max_values) {
    values_left_ = max_values;
    keys_.clear();
    return takes(row);
  }

 private:
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

  size_t values_left_ = 0;
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

std::optional<std::string_view> quick_text(std::span<char> line, std::string_view name,
                                           size_t max_depth, size_t max_values) {
  static_assert(kJsonPadding >= simdjson::SIMDJSON_PADDING);
  if (line.size() > kMaxQuickBytes) return std::nullopt;
  thread_local simdjson::dom::parser parser;
  if (parser.capacity() < line.size() || parser.max_depth() != max_depth) {
    const size_t capacity = std::max(size_t{64} << 10, line.size() * 5 / 4);
    if (parser.allocate(std::min(capacity, kMaxQuickBytes), max_depth) != simdjson::SUCCESS)
      return std::nullopt;
  }
  element row;
  if (parser.parse(line.data(), line.size(), /*realloc_if_needed=*/false).get(row) !=
      simdjson::SUCCESS)
    return std::nullopt;
  object members;
  thread_local Check check;
  if (row.get(members) != simdjson::SUCCESS || !check.takes(row, max_values)) return std::nullopt;
  const std::optional<element> found = find(members, name);
  std::string_view text;
  if (!found || found->get(text) != simdjson::SUCCESS || text.size() > line.size())
    return std::nullopt;
  std::ranges::copy(text, line.begin());
  return std::string_view(line.data(), text.size());
}

bool quick_is_utf8(std::string_view text) { return simdjson::validate_utf8(text); }

}  // namespace trireme::dataset

#else

#include "trireme/base/locale/text.h"

namespace trireme::dataset {

std::optional<std::string_view> quick_text(std::span<char>, std::string_view, size_t, size_t) {
  return std::nullopt;
}

bool quick_is_utf8(std::string_view text) { return is_utf8(text); }

}  // namespace trireme::dataset

#endif
