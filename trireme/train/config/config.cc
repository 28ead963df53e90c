#include "trireme/train/config/config.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <numeric>
#include <optional>
#include <sstream>

#include <toml++/toml.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/shown.h"
#include "trireme/comm/rendezvous/transport.h"
#include "trireme/train/config/bounded_toml.h"
#include "trireme/train/config/config_schema.h"
#include "trireme/train/optimizer/name_pattern.h"

namespace trireme::train {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

// The number of insertions, deletions and replacements that turn `a` into `b` (Levenshtein 1966).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

Field& find_field(std::vector<Field>& fields, const std::string& key, const std::string& source) {
  constexpr size_t kLongestKey = 100;  // the search for the nearest key is quadratic in it
  const auto found = std::ranges::find(fields, key, &Field::key);
  if (found != fields.end()) return *found;
  TRIREME_CHECK(key.size() <= kLongestKey, source, ": unknown key \"", shown(key),
                "\"; `trireme train --help` lists all");
  const auto nearest = std::ranges::min_element(
      fields, {}, [&](const Field& field) { return edit_distance(field.key, key); });
  throw ConfigError(
      concat(source, ": unknown key \"", shown(key), "\"; did you mean \"", nearest->key, "\"?"));
}

[[noreturn]] void fail_type(const std::string& source, const Field& field, std::string_view found) {
  static const char* const kExpected[] = {"a whole number", "a whole number from 0 on",
                                          "a number",       "true or false",
                                          "a string",       "a string"};
  throw ConfigError(concat(source, ": ", field.key, " is ", found, "; expected ",
                           kExpected[field.value.index()]));
}

template <typename Number>
bool parse_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

// Text that is not UTF-8 could be written into config.toml and a checkpoint, but never read again.
void check_utf8(const std::string& text, const std::string& source) {
  std::optional<std::string> again;
  try {
    again = toml::parse("text = " + quoted(text))["text"].value<std::string>();
  } catch (const toml::parse_error&) {
  }
  TRIREME_CHECK(again == text, source, " is \"", shown(text),
                "\", which TOML cannot hold; expected UTF-8");
}

[[noreturn]] void fail_choice(const Field& field, std::string_view found) {
  throw ConfigError(
      concat(field.key, " is \"", shown(found), "\"; expected one of ", joined(field.allowed)));
}

void assign_text(const Field& field, const std::string& text, const std::string& source) {
  const bool fits = std::visit(Overloaded{[&](std::string* value) {
                                            check_utf8(text, source);
                                            *value = text;
                                            return true;
                                          },
                                          [&](bool* value) {
                                            *value = text == "true";
                                            return *value || text == "false";
                                          },
                                          [&](const NamedValue& value) {
                                            if (!value.assign(text)) fail_choice(field, text);
                                            return true;
                                          },
                                          [&](auto* value) { return parse_number(text, *value); }},
                               field.value);
  if (!fits) fail_type(source, field, concat("\"", shown(text), "\""));
}

// The value in TOML, on one line and shortened.
std::string printed(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "an array";
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return shown(out.str());
}

template <typename Value>
bool assign_node(Value* target, const toml::node& node) {
  // A double also takes whole numbers. Nothing else is converted.
  if constexpr (std::is_same_v<Value, double>) {
    if (const auto whole = node.value_exact<int64_t>()) {
      *target = static_cast<double>(*whole);  // rounded beyond 2^53, where value<double>() fails
    } else if (const auto real = node.value_exact<double>()) {
      *target = *real;
    } else {
      return false;
    }
  } else if constexpr (std::is_same_v<Value, uint64_t>) {
    const auto value = node.value_exact<int64_t>();
    if (!value || *value < 0) return false;
    *target = static_cast<uint64_t>(*value);
  } else {
    const auto value = node.value_exact<Value>();
    if (!value) return false;
    *target = *value;
  }
  return true;
}

void assign_table(std::vector<Field>& fields, const toml::table& table, const std::string& source) {
  for (const auto& [section, content] : table) {
    if (!content.is_table()) {
      find_field(fields, std::string(section.str()), source);
      throw ConfigError(concat(source, ":", content.source().begin.line, ": \"",
                               shown(section.str()),
                               "\" stands outside its section; expected [section] and below it "
                               "key = value"));
    }
    for (const auto& [name, node] : *content.as_table()) {
      const Field& field = find_field(fields, concat(section.str(), ".", name.str()), source);
      const std::string where = concat(source, ":", node.source().begin.line);
      const bool fits = std::visit(
          Overloaded{[&, &node = node](const NamedValue& value) {
                       const auto name = node.value_exact<std::string>();
                       if (name && !value.assign(*name)) fail_choice(field, *name);
                       return name.has_value();
                     },
                     [&, &node = node](auto* target) { return assign_node(target, node); }},
          field.value);
      if (!fits) fail_type(where, field, printed(node));
    }
  }
}

constexpr size_t kMaxTextBytes = 4096;  // the limit for a path

void check_field(const Field& field) {
  std::visit(
      Overloaded{[&](const std::string* value) {
                   TRIREME_CHECK(value->size() <= kMaxTextBytes, field.key, " has ", value->size(),
                                 " bytes; expected at most ", kMaxTextBytes);
                   if (!field.allowed.empty() && !std::ranges::count(field.allowed, *value)) {
                     fail_choice(field, *value);
                   }
                 },
                 [](const bool*) {}, [](const NamedValue&) {},
                 [&](const auto* value) {
                   TRIREME_CHECK(field.range.contains(*value), field.key, " is ", *value,
                                 "; expected ", to_text(field.range));
                 }},
      field.value);
}

void check_allowed(std::vector<Field>& fields, const ResumeConfig& resume) {
  for (const std::string& key : split_list(resume.allow, ',')) {
    find_field(fields, key, "resume.allow");
  }
}

bool is_number(const Field& field) {
  return std::holds_alternative<int64_t*>(field.value) ||
         std::holds_alternative<uint64_t*>(field.value) ||
         std::holds_alternative<double*>(field.value);
}

std::string format_value(const Field& field) {
  return std::visit(
      Overloaded{[](const std::string* value) { return quoted(*value); },
                 [](const NamedValue& value) { return quoted(value.name()); },
                 [](const bool* value) { return std::string(*value ? "true" : "false"); },
                 [](const double* value) {
                   char digits[32];
                   const auto result = std::to_chars(digits, digits + sizeof(digits), *value);
                   const std::string text(digits, result.ptr);
                   return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
                 },
                 [](const auto* value) { return std::to_string(*value); }},
      field.value);
}

}  // namespace

std::vector<std::string> train_transports() {
  std::vector<std::string> names = names_of(comm::kTransports);
  std::erase(names, name_of(comm::kTransports, comm::Transport::kNccl));  // a run computes on CPUs
  return names;
}

c10::ScalarType RunConfig::gradient_dtype() const {
  return train.reduce_dtype == ReduceDtype::kFp32
             ? c10::promoteTypes(dtype(), c10::ScalarType::Float)
             : dtype();
}

int64_t RunConfig::held_gradients() const {
  const int64_t microbatches = microbatches_per_step();
  if (microbatches == 1) return 0;
  return train.reproducible ? std::bit_width(static_cast<uint64_t>(microbatches)) : 1;
}

namespace {

// Parses values without checking them.
RunConfig parse_values(std::string_view toml, const std::string& source) {
  RunConfig config;
  std::vector<Field> fields = schema(config);
  try {
    check_toml(toml, source);
    assign_table(fields, toml::parse(toml, source), source);
  } catch (const toml::parse_error& error) {
    // The parser quotes its input, including newlines.
    throw ConfigError(
        concat(source, ":", error.source().begin.line, ": ", shown(error.description(), 300)));
  }
  return config;
}

}  // namespace

RunConfig parse_saved_config(std::string_view toml, const std::string& source) {
  try {
    return parse_values(toml, source);
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
}

RunConfig parse_saved_model(std::string_view toml, const std::string& source) {
  RunConfig config = parse_saved_config(toml, source);
  try {
    for (const Field& field : schema(config)) {
      if (field.key.starts_with("model.") || field.key == "train.precision") check_field(field);
    }
  } catch (const ConfigError& error) {
    throw CheckpointError(concat(source, ": ", error.what()));
  }
  return config;
}

RunConfig parse_config(std::string_view toml, const std::string& source,
                       std::span<const Override> overrides) {
  RunConfig config = parse_values(toml, source);
  std::vector<Field> fields = schema(config);
  for (const auto& [key, text] : overrides) {
    const std::string source_of = "--" + shown(key);
    assign_text(find_field(fields, key, source_of), text, source_of);
  }
  std::ranges::for_each(fields, check_field);
  check_allowed(fields, config.resume);
  return config;
}

RunConfig load_config(const std::filesystem::path& path, std::span<const Override> overrides) {
  TRIREME_CHECK(std::filesystem::is_regular_file(path), "config ", path.string(),
                " does not exist; examples/demo.toml is one to start from");
  return parse_config(read_file(path, kMaxTomlBytes), path.string(), overrides);
}

std::vector<Override> settings(const RunConfig& config) {
  RunConfig copy = config;
  std::vector<Override> values;
  for (const Field& field : schema(copy)) {
    if (field.on_resume != OnResume::kNotKept) values.emplace_back(field.key, format_value(field));
  }
  return values;
}

std::string to_toml(const RunConfig& config) {
  std::ostringstream out;
  std::string section;
  for (const auto& [key, value] : settings(config)) {
    const size_t dot = key.find('.');
    if (key.substr(0, dot) != section) {
      out << (section.empty() ? "[" : "\n[") << key.substr(0, dot) << "]\n";
      section = key.substr(0, dot);
    }
    out << key.substr(dot + 1) << " = " << value << "\n";
  }
  return out.str();
}

std::string describe_config() {
  RunConfig defaults;
  std::ostringstream out;
  for (const Field& field : schema(defaults)) {
    std::string head = "  --" + field.key + "=" + format_value(field);
    head.resize(std::max<size_t>(head.size() + 1, 48), ' ');
    out << head << field.meaning;
    if (!field.allowed.empty()) out << ": " << joined(field.allowed);
    if (is_number(field)) out << " (" << to_text(field.range) << ")";
    out << "\n";
  }
  return out.str();
}

}  // namespace trireme::train
