// The keys of a config file that another program writes. Each is read by the caller, has the only
// value that is computed here, or changes nothing; any other is refused by its name.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "trireme/base/bounded_json.h"

namespace trireme::tasks {

// A key that is computed for one value only, as JSON. Null stands for that value, too.
struct FixedKey {
  std::string_view name;
  const char* value;
};

// taken: the keys that the caller reads. harmless: whether a key changes nothing
// Throws: ConfigError with the key and the value found
void check_foreign_keys(const JsonView& root, std::span<const FixedKey> fixed,
                        std::span<const std::string_view> taken,
                        bool (*harmless)(std::string_view));

// A member of `root` that is there and not null.
std::optional<JsonView> given(const JsonView& root, std::string_view key);

}  // namespace trireme::tasks
