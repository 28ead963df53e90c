// Reads JSON that someone else may have written. Size, number of values and depth are bounded
// before anything is built. Callers ask for every value by type and range.
// Needs nlohmann-json. base has this unit only if that package is found; the plug-in for
// torch.distributed builds without it.
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

#include "trireme/base/words.h"

namespace trireme {

struct JsonLimits {
  size_t max_bytes = size_t{64} << 20;  // of the text
  size_t max_values = size_t{4} << 20;  // in total: objects, arrays, strings, numbers, literals
  size_t max_depth = 32;                // of nested arrays and objects
  size_t max_ordered_keys = 1000;       // in one object of parse_ordered_json()
};

// Parses `text`, one JSON value in well-formed UTF-8. The limits bound memory. Later operations on
// the result (copy, dump, destructor) recurse at most `max_depth` deep. Every message begins with
// `source`, for example a path.
// Throws: ConfigError, one line, when the text is not JSON, exceeds a limit, or has a key twice in
//         one object
nlohmann::json parse_json(std::string_view text, const std::string& source,
                          const JsonLimits& limits = {});
// The same for a value in which the order of keys counts. A key is found by going through those
// before it, which is why an object may have only so many.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& source,
                                          const JsonLimits& limits = {});

// The same as parse_json(), without an exception: nothing for what that refuses. For readers that
// pass over bad lines, of which a file may have millions.
std::optional<nlohmann::json> try_parse_json(std::string_view text, const JsonLimits& limits = {});

// Quotes `text` for a message as JSON would, in ASCII only, and cuts it after `max_bytes`.
std::string in_quotes(std::string_view text, size_t max_bytes = 200);

// A value within a parsed text. A message names it by its path from `root`:
// "run.json: tensors.bias.shape[1] is -3; expected a whole number from 0 to 10".
// `root` and `source` must outlive the view and all views made from it.
class JsonView {
 public:
  JsonView(const nlohmann::json& root, const std::string& source);

  // A member of this object. find() returns nothing when there is no such member.
  // Throws: ConfigError when this is not an object; at() also when the member is missing
  JsonView at(std::string_view key) const;
  std::optional<JsonView> find(std::string_view key) const;

  // Throws: ConfigError when this is not an object (members) or not an array (elements)
  std::vector<std::pair<std::string, JsonView>> members() const;
  std::vector<JsonView> elements() const;

  // Throws: ConfigError when this has another type or is outside the range. A number with a point
  //         or an exponent is not an integer; every integer is a number.
  int64_t integer(int64_t minimum, int64_t maximum = std::numeric_limits<int64_t>::max()) const;
  std::vector<int64_t> integers(int64_t minimum,
                                int64_t maximum = std::numeric_limits<int64_t>::max()) const;
  double number(double minimum = std::numeric_limits<double>::lowest(),
                double maximum = std::numeric_limits<double>::max()) const;
  bool boolean() const;
  const std::string& text() const;
  // A string that may be stored and quoted (base/shown.h): no control characters, not too long.
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
