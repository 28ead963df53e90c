// Length: whether a run may go on and with what is one decision, on one saved state.
#include "trireme/train/state/resume.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/transfer/site_checkpoints.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/state/run_state.h"

namespace trireme::train {

// A resume finds the newest whole checkpoint, compares each key of its config with this run's, and
// then the data. A key's own rule says whether it may change; resume.allow names exceptions. Data
// is compared by content, because a copy elsewhere is the same data. A folder without a checkpoint
// is a new run's only if nothing speaks against it: a note, a folder without a manifest, or more
// steps than a run makes before its first checkpoint. Beginning again there would lose a run
// without a word.

namespace {

namespace fs = std::filesystem;

// "train.steps 20 -> 40, parallel.zero 0 -> 2".
std::string to_text(const std::vector<Change>& changes) {
  std::string text;
  for (const Change& change : changes) {
    text += concat(text.empty() ? "" : ", ", change.key, " ", change.before, " -> ", change.after);
  }
  return text;
}

std::string keys_of(const std::vector<Change>& changes) {
  std::string text;
  for (const Change& change : changes) text += (text.empty() ? "" : ",") + change.key;
  return text;
}

// The data of a run: for training, and for validation if it evaluates.
struct RunData {
  const RunConfig& config;
  const DataIdentity& training;
  const DataIdentity& validation;
};

// "tokens 0123456789abcdef": a part of `data` that is not the same in `other`.
std::string differing_part(const DataIdentity& data, const DataIdentity& other) {
  for (const auto& [name, sum] : data.checksums) {
    const auto found = other.checksums.find(name);
    if (found == other.checksums.end() || found->second != sum) return name + " " + sum;
  }
  return "other parts";
}

// Compares by content if the checkpoint identifies its data, whatever the path.
void compare_data(const RunData& saved, const RunData& now, std::vector<Change>& found) {
  if (!saved.training.is_known()) return;
  const std::string key = now.config.task->traits().data_key;
  auto path = std::ranges::find(found, key, &Change::key);
  // Other sets may have come or gone.
  const DataIdentity judged = parts_as_in(saved.validation, now.validation);
  const DataIdentity judging = parts_as_in(now.validation, saved.validation);
  const bool same_training = saved.training == now.training;
  if (same_training && judged.checksums == judging.checksums) {
    if (path == found.end()) return;
    path->rule = OnResume::kMayChange;
    path->after += " (the same content)";
    return;
  }
  const DataIdentity& before = same_training ? judged : saved.training;
  const DataIdentity& after = same_training ? judging : now.training;
  const auto describe = [&](const RunConfig& config, const DataIdentity& data) {
    const std::string content = before.counts == after.counts
                                    ? differing_part(data, &data == &before ? after : before)
                                    : to_text(data);
    return concat("'", config.task->traits().data_name, "' (", same_training ? "validation: " : "",
                  content, ")");
  };
  if (path == found.end()) path = found.insert(found.begin(), Change());
  *path = {key, describe(saved.config, before), describe(now.config, after), OnResume::kMustStay};
}

// The same for the teachers, each known if the run has one.
void compare_teachers(const RunConfig& config, const DataIdentity& before,
                      const DataIdentity& after, std::vector<Change>& found) {
  if (!before.is_known() || !after.is_known()) return;
  const TaskTraits task = config.task->traits();
  auto path = std::ranges::find(found, task.teacher_key, &Change::key);
  if (before == after) {
    if (path == found.end()) return;
    path->rule = OnResume::kMayChange;
    path->after += " (the same content)";
    return;
  }
  const std::string name = concat("'", task.teacher_name, "'");
  if (path == found.end()) {
    path = found.insert(found.begin(), {.key = task.teacher_key, .before = name, .after = name});
  }
  path->before += concat(" (", differing_part(before, after), ")");
  path->after += concat(" (", differing_part(after, before), ")");
}

// The order of gradients of a run that continues one with the config `saved`, or null: none.
GradientOrder gradient_order(const RunConfig& config, const RunConfig* saved,
                             std::vector<std::string>& notes) {
  const bool keeps = saved != nullptr && config.parallel.gradient_order == GradientOrder::kAuto;
  if (!keeps) {
    return config.is_rank_first() ? GradientOrder::kRankFirst : GradientOrder::kMicrobatchFirst;
  }
  // Versions without the key had the one order.
  if (saved->parallel.gradient_order != GradientOrder::kRankFirst) {
    return GradientOrder::kMicrobatchFirst;
  }
  const std::string reason = config.reason_against_rank_first();
  if (reason.empty()) return GradientOrder::kRankFirst;
  notes.push_back("parallel.gradient_order is microbatch-first from here on: " + reason);
  return GradientOrder::kMicrobatchFirst;
}

// The shares of a run that continues the one of `state`, whose config is `saved`.
std::vector<dataset::Shares> continued_shares(const RunConfig& config, const RunConfig& saved,
                                              const RunState& state,
                                              std::vector<std::string>& notes) {
  std::vector<dataset::Shares> before = state.shares;
  if (!config.shares.empty()) {
    if (before.empty()) before = saved.equal_shares();
    return joined_shares(before, config.shares, state.step);
  }
  if (before.empty()) return {};
  const int64_t samples = forward_samples(before);
  const bool fit = std::ssize(before.front().micro_batches) == sample_ranks(config.parallel);
  const bool divide = config.train.global_batch % samples == 0 || config.train.uneven_batches;
  const bool are_kept = fit && divide && !config.train.reproducible &&
                        !config.train.measure_noise && config.parallel.servers == 0 &&
                        config.parallel.learners == 1 &&
                        config.train.batch_ramp_start % samples == 0 &&
                        saved.train.micro_batch == config.train.micro_batch;
  notes.push_back(are_kept ? "shares of the data ranks: those of its checkpoint, " +
                                 describe_shares(before, state.step)
                           : "shares of the data ranks: equal from here on, because the ranks, "
                             "the batch or what goes with shares have changed");
  return are_kept ? before : std::vector<dataset::Shares>();
}

// Folders in checkpoints/ that look like checkpoints but are incomplete. No save leaves such
// folders.
std::vector<std::string> incomplete(const fs::path& root) {
  const std::vector<fs::path> complete = checkpoint::list(root);
  std::vector<std::string> names;
  std::error_code none;
  for (const fs::directory_entry& item : fs::directory_iterator(root, none)) {
    const std::string name = item.path().filename().string();
    if (name.starts_with("step-") && std::ranges::count(complete, item.path()) == 0) {
      names.push_back(name);
    }
  }
  std::ranges::sort(names);
  return names;
}

// The [checkpoint] section of the run that last wrote the folder; empty if unknown.
std::optional<CheckpointConfig> earlier_checkpoints(const fs::path& folder,
                                                    const RunConfig& config) {
  try {
    const fs::path path = folder / kConfigName;
    return parse_saved_config(read_file(path), path.string(), config).checkpoint;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The last step that a run may reach before its first checkpoint is on the disk; none: any. A
// step's line is written after the checkpoint of the step before it, but one in the background may
// go on until the next is due.
std::optional<int64_t> last_step_without_checkpoint(const std::optional<CheckpointConfig>& config) {
  if (!config || config->interval == 0 || config->on_error == CheckpointOnError::kWarn) return {};
  return config->interval * (config->mode == CheckpointMode::kAsync ? 2 : 1);
}

// The evidence that a folder without a checkpoint has had one; "": none.
std::string trace_of_checkpoint(const RunConfig& config, int64_t last_step) {
  const fs::path folder = config.output.folder;
  const fs::path note = folder / kCheckpointNote;
  if (fs::exists(note)) return concat(kCheckpointNote, " says that there was one");
  const std::vector<std::string> names = incomplete(folder / "checkpoints");
  if (!names.empty()) return concat("checkpoints/", names.back(), " has no manifest.json");
  const auto earlier = earlier_checkpoints(folder, config);
  const auto most = last_step_without_checkpoint(earlier);
  if (most && last_step > *most) {
    return concat("its checkpoint.interval was ", earlier->interval);
  }
  return "";
}

ResumePoint begin_anew(const RunConfig& config) {
  const fs::path folder = config.output.folder;
  const int64_t last_step = last_step_in(folder / kMetricsName);
  const std::string trace = trace_of_checkpoint(config, last_step);
  if (!trace.empty()) {
    throw CheckpointError(
        concat(folder.string(), " has no checkpoint, and is not a new run's: ", kMetricsName,
               " reaches step ", last_step, " and ", trace,
               "; put its checkpoints back, or begin at step 1 with another output.folder or "
               "after removing this one"));
  }
  ResumePoint point;
  point.gradient_order = gradient_order(config, nullptr, point.notes);
  point.shares = config.shares;
  if (last_step > 0) {
    point.notes.push_back(concat("the run ended at step ", last_step,
                                 " before its first checkpoint: it begins again at step 1"));
  }
  return point;
}

}  // namespace

std::vector<Change> changes(const RunConfig& before, const RunConfig& after) {
  const std::vector<Override> earlier = settings(before), now = settings(after);
  RunConfig copy = after;
  std::vector<Change> found;
  for (const Field& field : fields_of(copy)) {
    const auto was = std::ranges::find(earlier, field.key, &Override::first);
    const auto is = std::ranges::find(now, field.key, &Override::first);
    if (was == earlier.end() || was->second == is->second) continue;  // not kept, or unchanged
    found.push_back({field.key, was->second, is->second, field.on_resume});
  }
  return found;
}

// Whether the model of the checkpoint has as many parameters as this one: with another number no
// permission helps.
bool has_same_size(const RunConfig& config, std::span<const Change> refused) {
  RunConfig before = config;
  try {
    std::vector<Override> earlier;
    for (const Change& change : refused) {
      std::string value = change.before;
      if (value.starts_with('\'')) value = value.substr(1, value.size() - 2);
      const bool is_of_model = !change.key.starts_with("data.");
      if (is_of_model) earlier.emplace_back(change.key, value);
    }
    override_keys(before, earlier);
    return before.task->model().traits().num_parameters ==
           config.task->model().traits().num_parameters;
  } catch (const ConfigError&) {
    return true;  // not to be told
  }
}

[[noreturn]] void refuse_changes(const std::string& where, const RunConfig& config,
                                 const std::vector<Change>& refused) {
  const bool can_continue = has_same_size(config, refused);
  throw ConfigError(
      concat(where, " belongs to another run: ", to_text(refused), "; set back what has changed, ",
             can_continue ? "" : "or ", "choose another output.folder",
             can_continue ? ", or continue anyway with --resume.allow=" + keys_of(refused)
                          : "; the size of its weights differs from this model's"));
}

ResumePoint find_resume_point(const RunConfig& config, const DataIdentity& data,
                              const DataIdentity& validation, const DamagedCheckpoints& damaged,
                              std::span<const FastCheckpoint> fast, const DataIdentity& teacher) {
  const fs::path folder = config.output.folder;
  const fs::path root = folder / "checkpoints";
  const NewestCheckpoint found = newest_checkpoint(root, damaged, fast);
  if (found.path.empty()) return begin_anew(config);

  const fs::path& newest = found.path;
  const std::string where = newest.string();
  const checkpoint::Summary& summary = found.summary;
  const RunState state = parse_state(summary.state, where, summary.step);
  TRIREME_CHECK(state.step > 0, where,
                " has weights only, which no run has trained yet; begin one from them with --init=",
                folder.string(), " and another output.folder");
  const std::string task = saved_task_name(state.config, where);
  TRIREME_CHECK(task.empty() || task == config.task_choice.name, where,
                " belongs to another run: task.name '", shown(task), "' -> '",
                config.task_choice.name, "'; set it back, or choose another output.folder");
  const RunConfig saved = parse_saved_config(state.config, where, config);
  std::vector<Change> all = changes(saved, config);
  if (config.parallel.gradient_order == GradientOrder::kAuto) {
    std::erase_if(all,
                  [](const Change& change) { return change.key == "parallel.gradient_order"; });
  }
  compare_data({saved, state.data, state.validation}, {config, data, validation}, all);
  compare_teachers(config, state.teacher, teacher, all);
  const std::vector<std::string> allowed = split_list(config.resume.allow, ',');
  std::vector<Change> free, taken, refused;
  for (const Change& change : all) {
    const bool is_named = std::ranges::count(allowed, change.key) > 0;
    (change.rule == OnResume::kMayChange ? free : is_named ? taken : refused).push_back(change);
  }
  if (!refused.empty()) refuse_changes(where, config, refused);

  ResumePoint point{.checkpoint = newest, .notes = found.notes};
  point.gradient_order = gradient_order(config, &saved, point.notes);
  point.shares = continued_shares(config, saved, state, point.notes);
  if (!config.init.folder.empty()) {
    point.notes.push_back(concat("init.folder ", config.init.folder,
                                 " is left out: the weights are the checkpoint's"));
  }
  if (!free.empty()) point.notes.push_back("changed since then: " + to_text(free));
  if (!taken.empty()) point.notes.push_back("resume.allow lets change: " + to_text(taken));
  for (const std::string& name : incomplete(root)) {
    point.notes.push_back(concat("checkpoints/", name, " has no manifest.json and is left out"));
  }
  return point;
}

void note_checkpoint(const fs::path& folder, int64_t step) {
  const fs::path note = folder / kCheckpointNote;
  if (fs::exists(note)) return;
  write_file_atomically(note, nlohmann::json{{"step", step}}.dump() + "\n");
}

namespace {

// Empty when the checkpoint cannot be read, as one of another version or task.
std::vector<Change> changes_since(const fs::path& checkpoint, const RunConfig& config) {
  try {
    const std::string where = checkpoint.string();
    const RunState state = parse_state(checkpoint::inspect(checkpoint).state, where);
    return changes(parse_saved_config(state.config, where, config), config);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::string describe_changes(const fs::path& checkpoint, const RunConfig& config) {
  std::vector<Change> found = changes_since(checkpoint, config);
  // With sgd and muon, it decides whether there is a momentum state.
  std::erase_if(found, [](const Change& change) {
    return change.rule == OnResume::kMayChange && change.key != "optimizer.momentum";
  });
  if (found.empty()) return "";
  return concat("; since it was saved ", to_text(found),
                ": set it back, or choose another output.folder");
}

std::string describe_other_model(const fs::path& checkpoint, const RunConfig& config) {
  std::vector<Change> found = changes_since(checkpoint, config);
  // New adapters have no values of that run.
  const bool are_new = std::ranges::any_of(found, [](const Change& change) {
    return change.key == "lora.rank" && change.before == "0";
  });
  std::erase_if(found, [&](const Change& change) {
    const bool of_adapters = change.key.starts_with("lora.") && change.key != "lora.init";
    return !change.key.starts_with("model.") && (are_new || !of_adapters);
  });
  return to_text(found);
}

namespace fs = std::filesystem;

Resumption::Resumption(const RunConfig& config, comm::Communicator& world, const Places& places,
                       checkpoint::OnWait on_wait)
    : config_(config), world_(world), places_(places), on_wait_(std::move(on_wait)) {
  identify_data();
  find();
}

void Resumption::identify_data() {
  const auto look = [this](const checkpoint::Peers&) {
    const Task& task = *config_.task;
    data_ = task.identify(task.training());
    for (const ValidationSet& set : all_validation(task)) {
      add_part(validation_, set.name, task.identify(*set.source));
    }
    teacher_ = task.identify_teacher();
  };
  checkpoint::run_or_throw(world_, look, on_wait_);
  const std::string name = config_.task->traits().data_name;
  require_same_data(data_, name, world_);
  if (validation_.is_known()) require_same_data(validation_, name + " (validation)", world_);
  if (teacher_.is_known()) {
    require_same_data(teacher_, config_.task->traits().teacher_name + " (teacher)", world_);
  }
}

const FastPlace* Resumption::place_of(const fs::path& checkpoint) const {
  for (const FastPlace& place : places_.fast()) {
    if (checkpoint.parent_path() == place.root) return &place;
  }
  return nullptr;
}

// The newest complete checkpoint of each fast place; rank 0 can read its manifest.
std::vector<FastCheckpoint> Resumption::find_fast() {
  std::vector<FastCheckpoint> found;
  for (const FastPlace& place : places_.fast()) {
    std::set<int64_t> left_out;
    for (const auto& [folder, problem] : damaged_) {
      if (place_of(folder) != &place) continue;
      left_out.insert(checkpoint::step_of(folder.filename().string()));
      notes_.push_back(concat("DAMAGED: ", problem, "; another checkpoint is used"));
    }
    const auto complete =
        checkpoint::find_complete(place.root, left_out, place.sites, world_, on_wait_);
    notes_.insert(notes_.end(), complete.notes.begin(), complete.notes.end());
    if (!complete.newest) continue;
    checkpoint::bring(complete.newest->folder, {}, place.sites, world_, on_wait_);
    found.push_back(
        {place.name, complete.newest->folder, complete.newest->step, complete.newest->age});
  }
  return found;
}

void Resumption::find() {
  notes_.clear();
  const std::vector<FastCheckpoint> fast = find_fast();
  const auto look = [&](const checkpoint::Peers&) {
    ResumePoint point = find_resume_point(config_, data_, validation_, damaged_, fast, teacher_);
    std::ranges::move(point.notes, std::back_inserter(notes_));
    // The path comes last, because it may have any character.
    return concat(name_of(kGradientOrders, point.gradient_order), '\n', to_text(point.shares), '\n',
                  point.checkpoint.string());
  };
  const std::string found = checkpoint::from_root(world_, look, on_wait_);
  const size_t line = found.find('\n') + 1, end = found.find("\n\n") + 1;
  gradient_order_ = choose(kGradientOrders, "parallel.gradient_order", found.substr(0, line - 1));
  const std::string shares = found.substr(line, end - line);
  checkpoint_ = found.substr(end + 1);
  shares_ = shares.empty() ? std::vector<dataset::Shares>() : parse_shares(shares, "shares");
  place_ = place_of(checkpoint_);
}

RunState Resumption::load(TrainingState& state) {
  while (!checkpoint_.empty()) {
    try {
      return state.load(checkpoint_, place_);
    } catch (const CheckpointError& error) {
      const auto look = [&](const checkpoint::Peers&) -> std::string {
        if (place_ != nullptr) return error.what();  // no host has all of its files
        const auto problems = checkpoint::verify(checkpoint_).problems;
        return problems.empty() ? std::string() : problems.front();
      };
      const std::string problem = checkpoint::from_root(world_, look, on_wait_);
      if (problem.empty()) throw;  // it is whole, and does not fit
      damaged_[checkpoint_] = problem;
    }
    find();
    state.build();  // the damaged one may have left values in it
  }
  return state.begin();
}

}  // namespace trireme::train
