#include "trireme/tasks/export/foreign_keys.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::tasks {

void check_foreign_keys(const JsonView& root, std::span<const FixedKey> fixed,
                        std::span<const std::string_view> taken,
                        bool (*harmless)(std::string_view)) {
  for (const auto& [name, value] : root.members()) {
    if (std::ranges::find(taken, name) != taken.end() || harmless(name)) continue;
    const auto key = std::ranges::find(fixed, name, &FixedKey::name);
    if (key == fixed.end())
      value.fail("no such key, which may change what is computed: remove it if it does not");
    if (!value.value().is_null() && value.value() != nlohmann::json::parse(key->value))
      value.fail(concat(key->value, ": nothing else is computed here"));
  }
}

std::optional<JsonView> given(const JsonView& root, std::string_view key) {
  auto found = root.find(key);
  return found && found->value().is_null() ? std::nullopt : found;
}

}  // namespace trireme::tasks
