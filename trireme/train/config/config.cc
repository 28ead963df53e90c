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
#include "trireme/model/layers/recompute.h"
#include "trireme/train/config/bounded_toml.h"
#include "trireme/train/config/config_schema.h"
#include "trireme/train/optimizer/name_pattern.h"
#include "trireme/train/optimizer/parameter_groups.h"

namespace trireme::train {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

std::string join(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// Insertions, deletions and replacements that turn `a` into `b` (Levenshtein 1966).
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
  constexpr size_t kLongestKey = 100;  // the search for the nearest takes its square
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
  static const char* const kExpected[] = {"a whole number", "a whole number from 0 on", "a number",
                                          "true or false", "a string"};
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

// What is no UTF-8 could be written into config.toml and a checkpoint, and never read again.
void check_utf8(const std::string& text, const std::string& source) {
  std::optional<std::string> again;
  try {
    again = toml::parse("text = " + quoted(text))["text"].value<std::string>();
  } catch (const toml::parse_error&) {
  }
  TRIREME_CHECK(again == text, source, " is \"", shown(text),
                "\", which TOML cannot hold; expected UTF-8");
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
                                          [&](auto* value) { return parse_number(text, *value); }},
                               field.value);
  if (!fits) fail_type(source, field, "\"" + shown(text) + "\"");
}

// The value as TOML writes it, on one line and cut.
std::string printed(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "an array";
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return shown(out.str());
}

template <typename Value>
bool assign_node(Value* target, const toml::node& node) {
  // A double takes whole numbers too; nothing else converts.
  if constexpr (std::is_same_v<Value, double>) {
    if (const auto whole = node.value_exact<int64_t>()) {
      *target = static_cast<double>(*whole);  // rounded beyond 2^53, where value<double>() is empty
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
      if (!std::visit([&, &node = node](auto* target) { return assign_node(target, node); },
                      field.value)) {
        fail_type(where, field, printed(node));
      }
    }
  }
}

constexpr size_t kMaxTextBytes = 4096;  // as a path

void check_field(const Field& field) {
  std::visit(Overloaded{[&](const std::string* value) {
                          TRIREME_CHECK(value->size() <= kMaxTextBytes, field.key, " has ",
                                        value->size(), " bytes; expected at most ", kMaxTextBytes);
                          TRIREME_CHECK(
                              field.allowed.empty() || std::ranges::count(field.allowed, *value),
                              field.key, " is \"", shown(*value), "\"; expected one of ",
                              join(field.allowed));
                        },
                        [](const bool*) {},
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

// What later versions bring; refused here rather than ignored.
void check_supported(const RunConfig& config) {
  TRIREME_CHECK(config.parallel.expert == 1, "parallel.expert is ", config.parallel.expert,
                "; this version has no experts: set it to 1");
}

void check_precision(const TrainConfig& train) {
  const bool needs_masters = train.precision == "fp16";
  TRIREME_CHECK(
      train.master_weights || !needs_masters,
      "train.master_weights is false with fp16, whose weights lose every small update; set "
      "it to true, or train.precision = \"bf16\" with train.stochastic_rounding = true");
  TRIREME_CHECK(
      !train.stochastic_rounding || (train.precision == "bf16" && !train.master_weights),
      "train.stochastic_rounding is for bf16 weights without masters: set train.precision "
      "= \"bf16\" and train.master_weights = false, or leave it out");
}

// The tree over microbatches is the same for every number of ranks if all its subtrees are full.
void check_reproducible(const RunConfig& config) {
  const auto is_power = [](int64_t n) { return std::has_single_bit(static_cast<uint64_t>(n)); };
  const int64_t ranks = config.parallel.data, microbatches = config.microbatches_per_step();
  TRIREME_CHECK(!config.train.reproducible || (is_power(ranks) && is_power(microbatches)),
                "train.reproducible has ", ranks, " data ranks with ", microbatches,
                " microbatches each; both must be powers of two: choose train.global_batch and "
                "train.micro_batch so");
}

// Fills parallel.data and parallel.shard in.
void resolve_ranks(ParallelConfig& parallel, int num_ranks) {
  const int64_t others = parallel.tensor * parallel.pipeline * parallel.context;
  if (parallel.data == 0) {
    TRIREME_CHECK(num_ranks % others == 0, "parallel: tensor * pipeline * context is ", others,
                  ", which does not divide ", num_ranks, " ranks");
    parallel.data = num_ranks / others;
  }
  TRIREME_CHECK(parallel.data * others == num_ranks,
                "parallel: data * tensor * pipeline * context is ", parallel.data * others,
                " but there are ", num_ranks,
                " ranks; set parallel.data = 0 or start with --ranks ", parallel.data * others);
  if (parallel.zero == 0) {
    TRIREME_CHECK(parallel.shard <= 1, "parallel.shard is ", parallel.shard,
                  " with parallel.zero = 0, which shares nothing out; set zero to 1, 2 or 3, or "
                  "shard to 0");
    parallel.shard = 1;
  }
  if (parallel.shard == 0) parallel.shard = parallel.data;
  TRIREME_CHECK(parallel.data % parallel.shard == 0, "parallel.shard is ", parallel.shard,
                "; expected a divisor of the ", parallel.data, " data ranks, or 0 for all");
}

// After resolve_ranks().
void check_compression(const TrainConfig& train, const ParallelConfig& parallel) {
  if (train.compression == "none") return;
  TRIREME_CHECK(!train.reproducible, "train.compression is \"", train.compression,
                "\" with train.reproducible, which sums in another order; set one of them to its "
                "default");
  TRIREME_CHECK(parallel.zero == 0 || parallel.shard == parallel.data, "train.compression is \"",
                train.compression, "\" with parallel.shard = ", parallel.shard, " of ",
                parallel.data,
                " data ranks; it sums over all of them at once: set parallel.shard = 0");
  const bool has_residual = train.compression == "powersgd" || train.compression == "topk";
  TRIREME_CHECK(!has_residual || train.precision != "fp16", "train.compression is \"",
                train.compression,
                "\" with train.precision = \"fp16\", whose loss scale changes what a residual "
                "means; use bf16");
  TRIREME_CHECK(!has_residual || train.skip_bad_steps == 0, "train.compression is \"",
                train.compression,
                "\" with train.skip_bad_steps; a residual takes up the gradient of a step that is "
                "skipped: set one of them to its default");
  TRIREME_CHECK(!has_residual || !train.measure_noise, "train.compression is \"", train.compression,
                "\" with train.measure_noise, which compares gradients with their sum; measure "
                "without compression");
}

bool is_number(const Field& field) {
  return !std::holds_alternative<bool*>(field.value) &&
         !std::holds_alternative<std::string*>(field.value);
}

std::string format_value(const Field& field) {
  return std::visit(
      Overloaded{[](const std::string* value) { return quoted(*value); },
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

c10::ScalarType RunConfig::dtype() const {
  for (const auto& [name, type] : kPrecisions) {
    if (train.precision == name) return type;
  }
  throw InternalError("train.precision " + train.precision);
}

c10::ScalarType RunConfig::gradient_dtype() const {
  return train.reduce_dtype == "fp32" ? c10::promoteTypes(dtype(), c10::ScalarType::Float)
                                      : dtype();
}

int64_t RunConfig::held_gradients() const {
  const int64_t microbatches = microbatches_per_step();
  if (microbatches == 1) return 0;
  return train.reproducible ? std::bit_width(static_cast<uint64_t>(microbatches)) : 1;
}

namespace {

// Values that nobody has checked yet.
RunConfig parse_values(std::string_view toml, const std::string& source) {
  RunConfig config;
  std::vector<Field> fields = schema(config);
  try {
    check_toml(toml, source);
    assign_table(fields, toml::parse(toml, source), source);
  } catch (const toml::parse_error& error) {
    // The parser quotes what it saw, newlines included.
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

void resolve(RunConfig& config, int num_ranks) {
  check_supported(config);
  auto& [model, data, train, optimizer, parallel, offload, checkpoint, output, resume] = config;
  check_precision(train);
  resolve_ranks(parallel, num_ranks);
  check_compression(train, parallel);
  model::recompute_plan(train.recompute, train.recompute_modules);
  const int64_t per_forward = config.sequences_per_forward();
  const bool is_even = config.is_even();
  TRIREME_CHECK(is_even || train.uneven_batches, "train.global_batch is ", train.global_batch,
                "; expected a multiple of train.micro_batch * data ranks = ", train.micro_batch,
                " * ", parallel.data, " = ", per_forward, ", such as ",
                (train.global_batch / per_forward + 1) * per_forward,
                ", or --train.uneven_batches=true, and some ranks have less to do");
  TRIREME_CHECK(
      !train.measure_noise || is_even,
      "train.measure_noise compares microbatches of one size; set train.global_batch to a "
      "multiple of train.micro_batch * data ranks = ",
      per_forward);
  TRIREME_CHECK(!train.measure_noise || train.global_batch > train.micro_batch,
                "train.measure_noise compares the gradients of a step's microbatches, and there is "
                "one; lower train.micro_batch, which is ",
                train.micro_batch);
  check_reproducible(config);
  TRIREME_CHECK(train.spike_factor == 0 || train.spike_factor > 1, "train.spike_factor is ",
                train.spike_factor, "; expected 0 (never) or above 1, such as 3");
  parse_parameter_groups(optimizer.groups);
  model::ModelConfig shape = model;
  if (shape.vocab_size == 0) shape.vocab_size = 1;  // the tokenizer's, known once the data is open
  model::validate(shape);
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
    if (!field.allowed.empty()) out << ": " << join(field.allowed);
    if (is_number(field)) out << " (" << to_text(field.range) << ")";
    out << "\n";
  }
  return out.str();
}

}  // namespace trireme::train
