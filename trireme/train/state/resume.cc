#include "trireme/train/state/resume.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/shown.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/optimizer/name_pattern.h"
#include "trireme/train/state/state.h"

namespace trireme::train::inline internal {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNote = "first_checkpoint.json";

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
  const std::string key = now.config.task->data_key();
  auto path = std::ranges::find(found, key, &Change::key);
  const bool both_evaluate = saved.validation.is_known() && now.validation.is_known();
  const bool same_training = saved.training == now.training;
  if (same_training && (!both_evaluate || saved.validation == now.validation)) {
    if (path == found.end()) return;
    path->rule = OnResume::kMayChange;
    path->after += " (the same content)";
    return;
  }
  const DataIdentity& before = same_training ? saved.validation : saved.training;
  const DataIdentity& after = same_training ? now.validation : now.training;
  const auto describe = [&](const RunConfig& config, const DataIdentity& data) {
    const std::string content = before.counts == after.counts
                                    ? differing_part(data, &data == &before ? after : before)
                                    : to_text(data);
    return concat("'", config.task->data_name(), "' (", same_training ? "validation: " : "",
                  content, ")");
  };
  if (path == found.end()) path = found.insert(found.begin(), Change());
  *path = {key, describe(saved.config, before), describe(now.config, after), OnResume::kMustStay};
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

// What the run that last wrote the folder was to do about checkpoints; empty if unknown.
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
  const fs::path note = folder / kNote;
  if (fs::exists(note)) return concat(kNote, " says that there was one");
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

ResumePoint find_resume_point(const RunConfig& config, const DataIdentity& data,
                              const DataIdentity& validation, const DamagedCheckpoints& damaged,
                              std::span<const FastCheckpoint> fast) {
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
                " is of another run: task.name '", shown(task), "' -> '", config.task_choice.name,
                "'; set it back, or choose another output.folder");
  const RunConfig saved = parse_saved_config(state.config, where, config);
  std::vector<Change> all = changes(saved, config);
  compare_data({saved, state.data, state.validation}, {config, data, validation}, all);
  const std::vector<std::string> allowed = split_list(config.resume.allow, ',');
  std::vector<Change> free, taken, refused;
  for (const Change& change : all) {
    const bool is_named = std::ranges::count(allowed, change.key) > 0;
    (change.rule == OnResume::kMayChange ? free : is_named ? taken : refused).push_back(change);
  }
  TRIREME_CHECK(refused.empty(), where, " is of another run: ", to_text(refused),
                "; set back what has changed, choose another output.folder, or continue anyway "
                "with --resume.allow=",
                keys_of(refused));

  ResumePoint point{.checkpoint = newest, .notes = found.notes};
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
  const fs::path note = folder / kNote;
  if (fs::exists(note)) return;
  write_file_atomically(note, nlohmann::json{{"step", step}}.dump() + "\n");
}

std::string describe_changes(const fs::path& checkpoint, const RunConfig& config) {
  std::vector<Change> found;
  try {
    const std::string where = checkpoint.string();
    const RunState state = parse_state(checkpoint::inspect(checkpoint).state, where);
    found = changes(parse_saved_config(state.config, where, config), config);
  } catch (const Error&) {
    return "";  // another version; the first error says enough
  }
  // With sgd and muon, it decides whether there is a momentum state.
  std::erase_if(found, [](const Change& change) {
    return change.rule == OnResume::kMayChange && change.key != "optimizer.momentum";
  });
  if (found.empty()) return "";
  return concat("; since it was saved ", to_text(found),
                ": set it back, or choose another output.folder");
}

}  // namespace trireme::train::inline internal
