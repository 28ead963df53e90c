// Reads a TOML file of keys that do not describe a run, such as a cluster file.
#pragma once

#include <filesystem>
#include <vector>

#include "trireme/train/config/config.h"
#include "trireme/train/task/keys.h"

namespace trireme::train {

// Assigns what the file and then the overrides say to the fields, and checks every field.
// hint: what to do without the file, such as "`trireme bench device` writes one".
// Throws: ConfigError when there is no such file, on an unknown key (with the nearest known one), a
//         wrong type, a value out of its range
void read_sections(const std::filesystem::path& path, std::vector<Field> fields,
                   std::span<const Override> overrides, std::string_view hint);

// The fields as TOML, in their order.
std::string sections_to_toml(const std::vector<Field>& fields);

// Each field with its default and meaning, one per line, for --help.
std::string describe_fields(const std::vector<Field>& fields);

}  // namespace trireme::train
