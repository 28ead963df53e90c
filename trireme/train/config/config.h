// A run's whole configuration: typed, with defaults, and checked as a whole before the first
// allocation or connection. Reads TOML and --section.key=value overrides; writes the resolved TOML.
// Each section is a struct of keys (base/key.h), in the header of what it configures.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/key.h"
#include "trireme/checkpoint/chunk/codec.h"
#include "trireme/train/callbacks/callback.h"
#include "trireme/train/callbacks/named_callback.h"
#include "trireme/train/config/parallel_config.h"
#include "trireme/train/config/train_config.h"
#include "trireme/train/offload/offload_config.h"
#include "trireme/train/optimizer/optimizer_config.h"
#include "trireme/train/task/copy_box.h"
#include "trireme/train/task/task.h"

namespace trireme::parallel {
class RemoteRows;
}

namespace trireme::train {

struct TaskChoice {
  TRIREME_KEYS_BEGIN(TaskChoice)
  TRIREME_KEY(std::string, name, "", kMustStay, "what is trained")
  TRIREME_KEYS_END()
};

// The keys of [data] that every task has.
struct DataConfig {
  TRIREME_KEYS_BEGIN(DataConfig)
  TRIREME_KEY(uint64_t, seed, 1, kMustStay, "order of the samples, and their augmentation",
              Range{0, kMaxSeed})
  TRIREME_KEY(int64_t, workers, 1, kMayChange,
              "threads per rank that read samples ahead of the step; 0 = the step reads them",
              Range{0, 1024})
  TRIREME_KEY(int64_t, ahead, 2, kMayChange, "microbatches that each worker may be ahead",
              Range{1, 1024})
  TRIREME_KEY(dataset::LastBatch, last_batch, dataset::LastBatch::kFill, kMustStay,
              "the samples left over at an epoch's end: fill = in a batch with the next epoch's, "
              "keep = a smaller batch, drop = none",
              dataset::kLastBatches)
  TRIREME_KEY(int64_t, skip_bad_samples, 0, kMayChange,
              "samples of a run that may be unreadable; the next sample takes the place of each; "
              "0 = the first ends the run",
              Range{0, 1e9})
  TRIREME_KEYS_END()
};

// Where a new run takes its first weights from. A resumed run has its own.
struct InitConfig {
  TRIREME_KEYS_BEGIN(InitConfig)
  TRIREME_KEY(
      std::string, folder, "", kMustStay,
      "run, checkpoint or folder of Hugging Face whose weights a new run begins with; none = drawn "
      "from train.seed")
  TRIREME_KEY(std::string, names, "*", kMustStay,
              "its tensors that are taken, as patterns such as model.layers.*,model.norm.*")
  TRIREME_KEY(std::string, missing, "", kMustStay,
              "parameters that are not taken from it but drawn, as patterns such as lm_head.*")
  TRIREME_KEYS_END()
};

// Whether training waits until a checkpoint is on the disk.
enum class CheckpointMode { kAsync, kSync };
inline constexpr Choice<CheckpointMode> kCheckpointModes[] = {{"async", CheckpointMode::kAsync},
                                                              {"sync", CheckpointMode::kSync}};

// What a run does when its disk refuses a checkpoint.
enum class CheckpointOnError { kStop, kWarn };
inline constexpr Choice<CheckpointOnError> kCheckpointOnErrors[] = {
    {"stop", CheckpointOnError::kStop}, {"warn", CheckpointOnError::kWarn}};

inline constexpr Choice<checkpoint::Compression> kCompressions[] = {
    {"none", checkpoint::Compression::kNone}, {"zstd", checkpoint::Compression::kZstd}};

struct CheckpointConfig {
  TRIREME_KEYS_BEGIN(CheckpointConfig)
  TRIREME_KEY(int64_t, interval, 50, kMayChange, "save every N steps; 0 = only at the end",
              Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, keep, 3, kMayChange, "newest checkpoints that stay", Range{1, 1e6})
  TRIREME_KEY(CheckpointMode, mode, CheckpointMode::kAsync, kMayChange,
              "async = training goes on while a copy in memory is written, except with "
              "offload.optimizer = disk; sync = it waits for the disk",
              kCheckpointModes)
  TRIREME_KEY(CheckpointOnError, on_error, CheckpointOnError::kStop, kMayChange,
              "when a checkpoint cannot be written: stop = end the run, warn = go on without it",
              kCheckpointOnErrors)
  TRIREME_KEY(bool, incremental, true, kMayChange,
              "do not write again what the checkpoint before has; its files are linked")
  TRIREME_KEY(
      std::string, share, "", kMayChange,
      "other runs' folders, such as runs/base,runs/b: what their newest checkpoints have is "
      "not written again")
  TRIREME_KEY(checkpoint::Compression, compression, checkpoint::Compression::kNone, kMayChange,
              "how the bytes of tensors are stored", kCompressions)
  TRIREME_KEY(bool, compare_replicas, true, kMayChange,
              "refuse to save when ranks that should have the same tensor differ")
  TRIREME_KEY(bool, allow_nonfinite, false, kMayChange,
              "save weights and optimizer states that are NaN or infinite")
  TRIREME_KEY(
      int64_t, memory_interval, 0, kMayChange,
      "save into this host's memory every N steps, for a fast start after a crash; 0 = never",
      Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, replicas, 0, kMayChange,
              "other hosts that keep a copy of what a host has in memory", Range{0, 1024})
  TRIREME_KEY(std::string, local, "", kMayChange,
              "folder on a fast disk of each host that gets each checkpoint before output.folder "
              "does, and keeps the newest")
  TRIREME_KEYS_END()
};

struct OutputConfig {
  TRIREME_KEYS_BEGIN(OutputConfig)
  TRIREME_KEY(std::string, folder, "runs/demo", kMayChange,
              "metrics, events and checkpoints of the run")
  TRIREME_KEYS_END()
};

// See resume.h. Never written back, because a permission is for one start only.
struct ResumeConfig {
  TRIREME_KEYS_BEGIN(ResumeConfig)
  TRIREME_KEY(std::string, allow, "", kNotKept,
              "keys of the checkpoint's run that may change this once, such as "
              "data.path,model.dropout")
  TRIREME_KEYS_END()
};

// What a program offers to its configs: tasks by name, and callbacks of its own beside the built-in
// ones. Its own run first, in their order.
struct Offer {
  template <std::convertible_to<TaskTable> Tasks>
  Offer(const Tasks& offered, CallbackTable own = {}) : tasks(offered), callbacks(own) {}

  TaskTable tasks;
  CallbackTable callbacks;
};

struct RunConfig {
  TaskChoice task_choice;
  CopyBox<Task> task;
  std::vector<NamedCallback> callbacks;  // in the order in which they run
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ParallelConfig parallel;
  OffloadConfig offload;
  InitConfig init;
  CheckpointConfig checkpoint;
  OutputConfig output;
  ResumeConfig resume;

  // Where this rank computes: what rank_device() (run/device.h) makes of train.device.
  at::Device device = at::kCPU;
  // By which ranks on other hosts reach this one; empty: unknown.
  std::string host_address{};
  // Who has the rows of the task's embedding tables, instead of the ranks; null: the ranks.
  std::shared_ptr<parallel::RemoteRows> remote_rows{};
  // The number of hosts changes during the run. With fewer of them there are fewer replicas.
  bool is_elastic = false;
  double peak_flops = 0;  // of a rank's device, per second; 0: unknown

  // Samples that all ranks read in one forward. Valid after resolve(), like what follows.
  int64_t sequences_per_forward() const { return train.micro_batch * parallel.data; }
  // Whether each forward of a step has this many.
  bool is_even() const { return train.global_batch % sequences_per_forward() == 0; }
  // Forwards of one rank in one step.
  int64_t microbatches_per_step() const {
    return (train.global_batch + sequences_per_forward() - 1) / sequences_per_forward();
  }
  // How many sums of the whole gradient a rank holds until a step's last microbatch: none with a
  // single microbatch; with train.reproducible, one for each level of the tree.
  int64_t held_gradients() const;
  // The dtype of weights and activations.
  c10::ScalarType dtype() const { return train.precision; }
  // The dtype of gradients.
  c10::ScalarType gradient_dtype() const;
};

// The config's task, which is of the class TaskType (const for a const config).
// Throws: InternalError when it is another one
template <typename TaskType, typename Config>
TaskType& task_of(Config& config) {
  TRIREME_ASSERT(config.task, "a config without a task");
  auto* const task = dynamic_cast<TaskType*>(&*config.task);
  TRIREME_ASSERT(task != nullptr, "a config of the task ", config.task_choice.name);
  return *task;
}

// "train.steps" -> "10", as text.
using Override = std::pair<std::string, std::string>;

// The resolved config in a run's folder.
inline constexpr const char* kConfigName = "config.toml";

// The defaults of the task of that name; "": of the first.
// Throws: ConfigError for an unknown name (with the nearest known one), and when two callbacks have
//         one name
RunConfig default_config(const Offer& offer, const std::string& name = "");

// Reads the config of one of the tasks, by task.name.
// Throws: ConfigError on an unknown key or task (with the nearest known one), a wrong type, an
//         unknown value
RunConfig parse_config(std::string_view toml, const std::string& source, const Offer& offer,
                       std::span<const Override> overrides = {});
RunConfig load_config(const std::filesystem::path& path, const Offer& offer,
                      std::span<const Override> overrides = {});

// Reads the config that a run has written into its checkpoint, with the keys of the task of `like`.
// Its values may be out of today's range.
// Throws: CheckpointError on an unknown key, which a later version may have, or a wrong type
RunConfig parse_saved_config(std::string_view toml, const std::string& source,
                             const RunConfig& like);
// The same when only the model is used: the keys of the task and train.precision must be in today's
// range.
// Throws: CheckpointError, also when they are not
RunConfig parse_saved_model(std::string_view toml, const std::string& source,
                            const RunConfig& like);

// task.name in a config that a run has written; "" in those of versions without it.
// Throws: CheckpointError when the text is no TOML
std::string saved_task_name(std::string_view toml, const std::string& source);

// Lets the callbacks check their keys. After the task's data is open, on which its metrics depend.
// Throws: ConfigError
void check_callbacks(const RunConfig& config);

// Gives keys other values, and checks every key.
// Throws: ConfigError, as parse_config()
void override_keys(RunConfig& config, std::span<const Override> overrides);

// Every key with its value in the config.
std::vector<Field> fields_of(RunConfig& config);

// Checks everything that needs no data and no peer, and fills in parallel.data.
// Throws: ConfigError with the key, the value found and the value expected
void resolve(RunConfig& config, int num_ranks);

// Every key with its value in TOML: "train.precision" -> "'fp32'". Omits resume.allow.
std::vector<Override> settings(const RunConfig& config);
std::string to_toml(const RunConfig& config);

// Every key with its default and meaning, one per line, for --help: those of every task, then the
// common ones.
std::string describe_config(const Offer& offer);

}  // namespace trireme::train
