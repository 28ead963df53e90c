// The one way to read JSON that someone else may have written: bounded in size, count and depth
// before anything is built, and every value is asked for by type and range.
// Needs nlohmann-json, which the plug-in for torch.distributed builds without: base has this unit
// only where the package is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trireme/base/shown.h"

namespace trireme {

struct JsonLimits {
  size_t max_bytes = size_t{64} << 20;  // of the text
  size_t max_values = size_t{4} << 20;  // objects, arrays, strings, numbers and words together
  size_t max_depth = 32;                // arrays and objects inside one another
};

// The value of `text`, which is one JSON value of well-formed UTF-8. Memory is bounded by the
// limits; whatever is done with the result (copy, dump, destructor) recurses at most `max_depth`
// deep. `source`, a path say, opens every message.
// Throws: ConfigError, one line, for a text that is no JSON or goes beyond a limit, and for a key
// that an object has twice
nlohmann::json parse_json(std::string_view text, const std::string& source,
                          const JsonLimits& limits = {});

// `text` for a message, as JSON writes it: in quotes, ASCII alone, and cut after `max_bytes`.
std::string in_quotes(std::string_view text, size_t max_bytes = 200);

// A value within a parsed text. A message names it by its path from `root`:
// "run.json: tensors.bias.shape[1] is -3; expected a whole number from 0 to 10".
// `root` and `source` must outlive the view and all views made from it.
class JsonView {
 public:
  JsonView(const nlohmann::json& root, const std::string& source);

  // An object's member; nothing, when it has none of this name.
  // Throws: ConfigError when this is no object; at() also when the member is missing
  JsonView at(std::string_view key) const;
  std::optional<JsonView> find(std::string_view key) const;

  // Throws: ConfigError when this is no object (members) or no array (elements)
  std::vector<std::pair<std::string, JsonView>> members() const;
  std::vector<JsonView> elements() const;

  // Throws: ConfigError when this is of another type or outside the range. A number with a point
  // or an exponent is no integer; an integer is a number.
  int64_t integer(int64_t minimum, int64_t maximum) const;
  std::vector<int64_t> integers(int64_t minimum, int64_t maximum) const;
  double number(double minimum = std::numeric_limits<double>::lowest(),
                double maximum = std::numeric_limits<double>::max()) const;
  bool boolean() const;
  const std::string& text() const;
  // A text that may be kept and quoted (base/shown.h): no control characters, not too long.
  const std::string& word(size_t max_bytes = kMaxWordBytes) const;

  const nlohmann::json& value() const { return *value_; }

  // Throws ConfigError: "SOURCE: PATH is VALUE; expected `expected`".
  [[noreturn]] void fail(std::string_view expected) const;

 private:
  JsonView(const nlohmann::json* root, const nlohmann::json* value, const std::string* source);

  const nlohmann::json* root_;
  const nlohmann::json* value_;
  const std::string* source_;
};

}  // namespace trireme
