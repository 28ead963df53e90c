#include "trireme/train/config/config.h"

#include <algorithm>

#include <toml++/toml.h>

#include "trireme/base/bounded_toml.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"
#include "trireme/comm/rendezvous/store_group.h"
#include "trireme/plan/cost/workload.h"
#include "trireme/train/config/field_values.h"
#include "trireme/train/config/read_sections.h"
#include "trireme/train/optimizer/sign_schedule.h"
#include "trireme/train/task/common_keys.h"

namespace trireme::train {

// All keys of a run are one list (fields_of()): files, overrides, --help and the comparison of a
// resume go through it. Which keys there are depends on the task, so its name is looked up before
// anything is assigned, in the overrides first. A folder of foreign weights gives the task its keys
// when those of the file and the overrides are there to be read, and these are then assigned again.
// Values are checked after the overrides, which may mend one of the file's. A saved config is read
// by the same code, but its errors are CheckpointErrors.

namespace {

constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

void check_allowed(std::vector<Field>& fields, const ResumeConfig& resume) {
  for (const std::string& key : split_list(resume.allow, ',')) {
    find_field(fields, key, "resume.allow");
  }
}

}  // namespace

std::vector<std::string> train_transports() {
  std::vector<std::string> names = names_of(comm::kTransports);
  // For tensors of GPUs: train.device and parallel.gpu_transport.
  std::erase(names, name_of(comm::kTransports, comm::Transport::kNccl));
  std::erase(names, name_of(comm::kTransports, comm::Transport::kCudaIpc));
  return names;
}

std::vector<std::string> RunConfig::chosen_keys() const {
  std::vector<std::string> keys;
  if (train.micro_batch == 0) keys.emplace_back("train.micro_batch");
  if (train.recompute == model::Recompute::kAuto) keys.emplace_back("train.recompute");
  return keys;
}

model::RecomputePlan RunConfig::recompute_plan() const {
  model::RecomputePlan plan = model::recompute_plan(train.recompute, train.recompute_modules);
  if (train.recompute_blocks > 0) plan.num_blocks = train.recompute_blocks;
  if (offload.activation_blocks > 0) plan.num_stored = offload.activation_blocks;
  return plan;
}

c10::ScalarType RunConfig::gradient_dtype() const {
  return train.reduce_dtype == ReduceDtype::kFp32
             ? c10::promoteTypes(dtype(), c10::ScalarType::Float)
             : dtype();
}

bool RunConfig::is_rank_first() const {
  if (parallel.gradient_order != GradientOrder::kAuto) {
    return parallel.gradient_order == GradientOrder::kRankFirst;
  }
  return parallel.zero >= 2 && reason_against_rank_first().empty();
}

std::string RunConfig::reason_against_rank_first() const {
  if (parallel.servers > 0 && parallel.served == Served::kAll) {
    return "a worker pushes the sum of its microbatches to the servers";
  }
  if (signs_of(optimizer) != SignsOf::kNothing) {
    return concat("optimizer.name \"", optimizer.name, "\" exchanges signs once per step");
  }
  if (train.gradient_sum != parallel::GradientSum::kSum) {
    return "train.gradient_sum \"adasum\" is over the gradients of whole steps";
  }
  if (!train.reproducible || !task) return "";
  // Ranks would take turns at the samples.
  if (task->traits().has_tables) {
    return "with train.reproducible the rows of tables are summed rank by rank";
  }
  if (task->model().traits().has_batch_norm) {
    return "with train.reproducible batch norms would see other samples together";
  }
  return "";
}

namespace {

// Those of the task's kind come with the sections that they are in.
void add_common_keys(Task& task, Keys& keys) {
  if (auto* const common = dynamic_cast<CommonKeys*>(&task)) common->add_common_keys(keys);
}

}  // namespace

std::vector<Field> fields_of(RunConfig& config) {
  Keys keys;
  keys.add("task", config.task_choice);
  if (config.task) config.task->add_keys(keys);
  keys.add("data", config.data);
  keys.add("train", config.train);
  keys.add("optimizer", config.optimizer);
  keys.add("parallel", config.parallel);
  if (config.task) add_common_keys(*config.task, keys);
  keys.add("outer", config.outer);
  keys.add("offload", config.offload);
  keys.add("init", config.init);
  keys.add("checkpoint", config.checkpoint);
  keys.add("output", config.output);
  keys.add("watch", config.watch);
  keys.add("tracking", config.tracking);
  keys.add("resume", config.resume);
  for (NamedCallback& named : config.callbacks) named.callback->add_keys(keys);
  return keys.take();
}

namespace {

void add_callbacks(CallbackTable table, std::vector<NamedCallback>& callbacks) {
  for (const CallbackKind& kind : table) {
    const bool is_name = !kind.name.empty() && kind.name.size() <= kMaxComparedBytes &&
                         kind.name.find_first_not_of(kNameCharacters) == std::string_view::npos;
    TRIREME_CHECK(is_name, "the program has a callback named \"", shown(kind.name),
                  "\"; expected letters, digits and _");
    TRIREME_CHECK(std::ranges::count(callbacks, kind.name, &NamedCallback::name) == 0,
                  "the program has two callbacks named \"", kind.name, "\"; rename one");
    callbacks.push_back({std::string(kind.name), kind.make()});
  }
}

// A program's own callbacks, its task's, and the built-in ones.
std::vector<NamedCallback> make_callbacks(const Offer& offer, CallbackTable of_task) {
  std::vector<NamedCallback> callbacks;
  for (const CallbackTable table : {offer.callbacks, of_task, built_in_callbacks()}) {
    add_callbacks(table, callbacks);
  }
  return callbacks;
}

}  // namespace

RunConfig default_config(const Offer& offer, const std::string& name) {
  RunConfig config;
  config.callbacks = make_callbacks(offer, {});
  const TaskTable tasks = offer.tasks;
  if (tasks.empty()) return config;
  const TaskKind* const found = name.empty() ? &tasks.front() : find_choice(tasks, name);
  if (found == nullptr) {
    const std::vector<std::string> names = names_of(tasks);
    throw ConfigError(concat("task.name is \"", shown(name), "\"", did_you_mean(names, name),
                             likely_name(names, name).empty() ? "; this" : " This", " program has ",
                             in_words(names)));
  }
  config.task_choice.name = found->name;
  config.task = found->make();
  config.callbacks = make_callbacks(offer, config.task->traits().callbacks);
  return config;
}

namespace {

toml::table parse_table(std::string_view toml, const std::string& source) {
  try {
    check_toml(toml, source);
    return toml::parse(toml, source);
  } catch (const toml::parse_error& error) {
    // The parser quotes its input, including newlines.
    throw ConfigError(
        concat(source, ":", error.source().begin.line, ": ", shown(error.description(), 300)));
  }
}

// "" when the table has no such key. A value of another type is found later.
std::string text_at(const toml::table& table, std::string_view section, std::string_view name) {
  return table[section][name].value_exact<std::string>().value_or("");
}

std::string task_name(const toml::table& table) { return text_at(table, "task", "name"); }

// The same for the overrides, which come after the table.
std::string last_text(const toml::table& table, std::span<const Override> overrides,
                      std::string_view section, std::string_view name) {
  const std::string key = concat(section, ".", name);
  for (size_t i = overrides.size(); i-- > 0;) {
    if (overrides[i].first == key) return overrides[i].second;
  }
  return text_at(table, section, name);
}

void assign_values(RunConfig& config, const toml::table& table, const std::string& source) {
  std::vector<Field> fields = fields_of(config);
  assign_table(fields, table, source);
}

}  // namespace

std::string saved_task_name(std::string_view toml, const std::string& source) {
  try {
    return task_name(parse_table(toml, source));
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
}

RunConfig parse_saved_config(std::string_view toml, const std::string& source,
                             const RunConfig& like) {
  try {
    const toml::table table = parse_table(toml, source);
    const std::string name = task_name(table);
    TRIREME_CHECK(name.empty() || name == like.task_choice.name, source, ": its task.name is \"",
                  shown(name), "\", not \"", like.task_choice.name, "\"");
    RunConfig config;
    config.task_choice = like.task_choice;
    config.task = like.task;
    config.callbacks = like.callbacks;
    assign_values(config, table, source);
    return config;
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
}

RunConfig parse_saved_model(std::string_view toml, const std::string& source,
                            const RunConfig& like) {
  RunConfig config = parse_saved_config(toml, source, like);
  try {
    Keys keys;
    config.task->add_keys(keys);
    std::ranges::for_each(keys.take(), check_field);
    for (const Field& field : fields_of(config)) {
      if (field.key == "train.precision") check_field(field);
    }
  } catch (const ConfigError& error) {
    throw CheckpointError(concat(source, ": ", error.what()));
  }
  return config;
}

namespace {

void assign_overrides(std::vector<Field>& fields, std::span<const Override> overrides) {
  for (const auto& [key, text] : overrides) {
    const std::string source = "--" + shown(key);
    assign_text(find_field(fields, key, source), text, source);
  }
  std::ranges::for_each(fields, check_field);
}

}  // namespace

RunConfig parse_config(std::string_view toml, const std::string& source, const Offer& offer,
                       std::span<const Override> overrides) {
  const toml::table table = parse_table(toml, source);
  RunConfig config = default_config(offer, last_text(table, overrides, "task", "name"));
  const std::string weights = last_text(table, overrides, "init", "folder");
  const auto assign = [&] {
    assign_values(config, table, source);
    std::vector<Field> fields = fields_of(config);
    assign_overrides(fields, overrides);
    return fields;
  };
  if (config.task && !weights.empty()) {
    assign();  // what weights decide may depend on what is asked, such as the objective
    config.task->take_keys_of(weights, config);
  }
  std::vector<Field> fields = assign();
  check_allowed(fields, config.resume);
  return config;
}

void override_keys(RunConfig& config, std::span<const Override> overrides) {
  std::vector<Field> fields = fields_of(config);
  assign_overrides(fields, overrides);
}

RunConfig load_config(const std::filesystem::path& path, const Offer& offer,
                      std::span<const Override> overrides) {
  TRIREME_CHECK(std::filesystem::is_regular_file(path), "config ", path.string(),
                std::filesystem::exists(path) ? " is not a file; " : " does not exist; ",
                "examples/demo.toml is one to start from");
  return parse_config(read_file(path, kMaxTomlBytes), path.string(), offer, overrides);
}

void read_sections(const std::filesystem::path& path, std::vector<Field> fields,
                   std::span<const Override> overrides, std::string_view hint) {
  TRIREME_CHECK(std::filesystem::is_regular_file(path), shown(path.string()),
                std::filesystem::exists(path) ? " is not a file; " : " does not exist; ", hint);
  const toml::table table = parse_table(read_file(path, kMaxTomlBytes), path.string());
  assign_table(fields, table, path.string());
  assign_overrides(fields, overrides);
}

std::vector<Override> settings(const RunConfig& config) {
  RunConfig copy = config;
  std::vector<Override> values;
  for (const Field& field : fields_of(copy)) {
    if (field.on_resume != OnResume::kNotKept) values.emplace_back(field.key, format_value(field));
  }
  return values;
}

namespace {

std::string to_toml(std::span<const Override> values) {
  TextWriter out;
  std::string section;
  for (const auto& [key, value] : values) {
    const size_t dot = key.find('.');
    if (key.substr(0, dot) != section) {
      out << (section.empty() ? "[" : "\n[") << key.substr(0, dot) << "]\n";
      section = key.substr(0, dot);
    }
    out << key.substr(dot + 1) << " = " << value << "\n";
  }
  return out.str();
}

}  // namespace

std::string to_toml(const RunConfig& config) { return to_toml(settings(config)); }

std::string sections_to_toml(const std::vector<Field>& fields) {
  std::vector<Override> values;
  for (const Field& field : fields) values.emplace_back(field.key, format_value(field));
  return to_toml(values);
}

namespace {

void describe(std::vector<Field> fields, TextWriter& out) {
  for (const Field& field : fields) {
    // As options are shown: a long one has its meaning on the next line.
    constexpr size_t kColumn = 30;
    const std::string head = "  --" + field.key + "=" + format_value(field);
    const bool is_long = head.size() + 2 > kColumn;
    out << head << (is_long ? "\n" : "") << std::string(kColumn - (is_long ? 0 : head.size()), ' ')
        << field.meaning;
    if (!field.allowed.empty()) out << " (one of " << joined(field.allowed) << ")";
    if (is_number(field)) out << " (" << to_text(field.range) << ")";
    out << "\n";
  }
}

}  // namespace

std::string describe_fields(const std::vector<Field>& fields) {
  TextWriter out;
  describe(fields, out);
  return out.str();
}

std::string describe_config(const Offer& offer) {
  const TaskTable tasks = offer.tasks;
  TextWriter out;
  for (const TaskKind& kind : tasks) {
    if (tasks.size() > 1)
      out << "\n[task] name = \"" << kind.name << "\": " << kind.summary << "\n";
    const std::unique_ptr<Task> task = kind.make();
    Keys keys;
    task->add_keys(keys);
    add_common_keys(*task, keys);
    std::vector<NamedCallback> callbacks;
    add_callbacks(task->traits().callbacks, callbacks);
    for (NamedCallback& named : callbacks) named.callback->add_keys(keys);
    describe(keys.take(), out);
  }
  if (tasks.size() > 1) out << "\nevery task\n";
  RunConfig common;
  common.callbacks = make_callbacks(offer, {});
  describe(fields_of(common), out);
  return out.str();
}

}  // namespace trireme::train
