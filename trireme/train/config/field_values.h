// The values of the config's keys as text and as TOML: limited, assigned, checked and written.
// `source` names the file or the option in the errors. Knows no key.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

#include "trireme/train/task/keys.h"

namespace trireme::train {

// The field named `key`.
// Throws: ConfigError with the nearest name when there is none
Field& find_field(std::vector<Field>& fields, const std::string& key, const std::string& source);

// Throws: ConfigError when the text or the value has another type, or is none of the allowed names
void assign_text(const Field& field, const std::string& text, const std::string& source);
void assign_table(std::vector<Field>& fields, const toml::table& table, const std::string& source);

// Throws: ConfigError when the value is out of its range, none of the allowed, or over 4096 bytes
void check_field(const Field& field);

[[nodiscard]] bool is_number(const Field& field);

// The value in TOML; a double with the digits that read back as the same bits.
[[nodiscard]] std::string format_value(const Field& field);

}  // namespace trireme::train
