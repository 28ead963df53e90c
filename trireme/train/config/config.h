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
#include "trireme/train/config/outer_config.h"
#include "trireme/train/config/parallel_config.h"
#include "trireme/train/config/shares.h"
#include "trireme/train/config/tracking_config.h"
#include "trireme/train/config/train_config.h"
#include "trireme/train/config/watch_config.h"
#include "trireme/train/offload/offload_config.h"
#include "trireme/train/optimizer/optimizer_config.h"
#include "trireme/train/task/copy_box.h"
#include "trireme/train/task/task.h"

namespace trireme::parallel {
class RemoteRows;
}

namespace trireme::train {

class RemoteTeacher;

struct TaskChoice {
  TRIREME_KEYS_BEGIN(TaskChoice)
  TRIREME_KEY(std::string, name, "", kMustStay, "task to train")
  TRIREME_KEYS_END()
};

// The keys of [data] that every task has.
struct DataConfig {
  TRIREME_KEYS_BEGIN(DataConfig)
  TRIREME_KEY(uint64_t, seed, 1, kMustStay, "random seed of the sample order and of augmentation",
              Range{0, kMaxSeed})
  TRIREME_KEY(int64_t, workers, 1, kMayChange,
              "threads per rank that read samples ahead; 0 = read them within the step",
              Range{0, 1024})
  TRIREME_KEY(int64_t, ahead, 2, kMayChange, "microbatches that each worker may read ahead",
              Range{1, 1024})
  TRIREME_KEY(dataset::LastBatch, last_batch, dataset::LastBatch::kFill, kMustStay,
              "use of the samples left over at the end of an epoch; fill = complete the batch from "
              "the next epoch, keep = train on a smaller batch, drop = skip them",
              dataset::kLastBatches)
  TRIREME_KEY(int64_t, skip_bad_samples, 0, kMayChange,
              "unreadable samples to tolerate per run, each replaced by the next sample; 0 = end "
              "the run at the first",
              Range{0, 1e9})
  TRIREME_KEYS_END()
};

// The source of a new run's initial weights. A resumed run ignores it.
struct InitConfig {
  TRIREME_KEYS_BEGIN(InitConfig)
  TRIREME_KEY(std::string, folder, "", kMustStay,
              "source of a new run's initial weights: a run, a checkpoint or a Hugging Face "
              "folder; empty = random, from train.seed")
  TRIREME_KEY(std::string, names, "*", kMustStay,
              "tensors to take from init.folder: comma-separated patterns, such as "
              "model.layers.*,model.norm.*")
  TRIREME_KEY(std::string, missing, "", kMustStay,
              "parameters to initialise at random instead of from init.folder: comma-separated "
              "patterns, such as lm_head.*")
  TRIREME_KEYS_END()
};

// Whether training waits until a checkpoint is on the disk.
enum class CheckpointMode { kAsync, kSync };
inline constexpr Choice<CheckpointMode> kCheckpointModes[] = {{"async", CheckpointMode::kAsync},
                                                              {"sync", CheckpointMode::kSync}};

// The reaction to a checkpoint that cannot be written.
enum class CheckpointOnError { kStop, kWarn };
inline constexpr Choice<CheckpointOnError> kCheckpointOnErrors[] = {
    {"stop", CheckpointOnError::kStop}, {"warn", CheckpointOnError::kWarn}};

inline constexpr Choice<checkpoint::Compression> kCompressions[] = {
    {"none", checkpoint::Compression::kNone}, {"zstd", checkpoint::Compression::kZstd}};

struct CheckpointConfig {
  TRIREME_KEYS_BEGIN(CheckpointConfig)
  TRIREME_KEY(int64_t, interval, 50, kMayChange,
              "save a checkpoint every N steps; 0 = only at the end", Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, keep, 3, kMayChange, "number of newest checkpoints to keep", Range{1, 1e6})
  TRIREME_KEY(CheckpointMode, mode, CheckpointMode::kAsync, kMayChange,
              "when training continues after a save; async = while a copy in memory is written "
              "(not with offload.optimizer = disk), sync = after the files are on disk",
              kCheckpointModes)
  TRIREME_KEY(CheckpointOnError, on_error, CheckpointOnError::kStop, kMayChange,
              "reaction to a checkpoint that cannot be written; stop = end the run, warn = "
              "continue without it",
              kCheckpointOnErrors)
  TRIREME_KEY(bool, incremental, true, kMayChange,
              "hard-link data that the previous checkpoint already has instead of writing it again")
  TRIREME_KEY(std::string, share, "", kMayChange,
              "comma-separated folders of other runs: link data that their newest checkpoints "
              "already have instead of writing it again")
  TRIREME_KEY(checkpoint::Compression, compression, checkpoint::Compression::kNone, kMayChange,
              "compression of stored tensors", kCompressions)
  TRIREME_KEY(
      bool, compare_replicas, true, kMayChange,
      "compare replicated tensors between ranks before a save, and refuse to save if they differ")
  TRIREME_KEY(bool, allow_nonfinite, false, kMayChange,
              "save weights and optimizer states even if they contain NaN or infinite values")
  TRIREME_KEY(int64_t, memory_interval, 0, kMayChange,
              "save to host memory every N steps, for a fast restart after a crash; 0 = never",
              Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, replicas, 0, kMayChange,
              "number of other hosts that hold a copy of each host's checkpoint in memory",
              Range{0, 1024})
  TRIREME_KEY(std::string, local, "", kMayChange,
              "folder on a fast local disk of each host; every checkpoint is written there first, "
              "then to output.folder; only the newest is kept")
  TRIREME_KEY(
      std::string, store, "", kMayChange,
      "object store that keeps the checkpoints too, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX; "
      "a run whose folder has none goes on with those there")
  TRIREME_KEYS_END()
};

struct OutputConfig {
  TRIREME_KEYS_BEGIN(OutputConfig)
  TRIREME_KEY(std::string, folder, "runs/demo", kMayChange,
              "folder for metrics, events and checkpoints of the run")
  TRIREME_KEYS_END()
};

// See resume.h. Never written back, because a permission is for one start only.
struct ResumeConfig {
  TRIREME_KEYS_BEGIN(ResumeConfig)
  TRIREME_KEY(
      std::string, allow, "", kNotKept,
      "comma-separated keys that this start may change although the checkpoint fixes them, such "
      "as data.path,model.dropout")
  TRIREME_KEYS_END()
};

// The tasks and callbacks that a program offers to its configs. Its own callbacks run before the
// built-in ones, in their order.
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
  OuterConfig outer;
  OffloadConfig offload;
  InitConfig init;
  CheckpointConfig checkpoint;
  OutputConfig output;
  WatchConfig watch;
  TrackingConfig tracking;
  ResumeConfig resume;

  // The device of this rank: the result of rank_device() (compute_device.h) for train.device.
  at::Device device = at::kCPU;
  // Address at which ranks on other hosts reach this one; empty: unknown.
  std::string host_address{};
  // The number of this rank's learner, from 0.
  int learner = 0;
  // Who has the rows of the task's embedding tables, instead of the ranks; null: the ranks.
  std::shared_ptr<parallel::RemoteRows> remote_rows{};
  // On ranks that train: the teacher on ranks of its own; null: there is none there.
  std::shared_ptr<RemoteTeacher> remote_teacher{};
  // The number of hosts changes during the run. With fewer of them there are fewer replicas.
  bool is_elastic = false;
  // Under an agent: its name for the job, and the number of the job's epoch; 0: no agent.
  std::string job{};
  int64_t job_epoch = 0;
  // Epoch of the run's folder, over all jobs (run/run_epochs.h). The trainer sets it.
  int64_t run_epoch = 1;
  double peak_flops = 0;   // of a rank's device, per second; 0: unknown
  bool is_frozen = false;  // no parameter is trained, and there is no loss: a teacher's config

  // What train.shares holds, or a checkpoint; empty: equal shares. resolve() reads the file.
  std::vector<dataset::Shares> shares{};
  // Whether data ranks have unequal shares, or may come to have them.
  bool may_have_shares() const { return !shares.empty() || train.shares_interval > 0; }

  // Learners that are ranks of this run.
  int64_t learners_here() const { return outer.meets() ? 1 : parallel.learners; }

  // Whether the planner has yet to choose the layout, or only these keys.
  bool has_choices() const { return parallel.automatic || !chosen_keys().empty(); }
  // train.micro_batch, train.recompute: those that are "auto".
  std::vector<std::string> chosen_keys() const;

  // What each pipeline stage recomputes.
  model::RecomputePlan recompute_plan() const;

  // As long as nothing has been measured or read.
  std::vector<dataset::Shares> equal_shares() const {
    return {
        {0, std::vector<int64_t>(static_cast<size_t>(sample_ranks(parallel)), train.micro_batch)}};
  }

  // Samples that all ranks read in one forward. Valid after resolve(), like what follows.
  int64_t sequences_per_forward() const {
    return shares.empty() ? train.micro_batch * sample_ranks(parallel) * parallel.learners
                          : forward_samples(shares);
  }
  // Samples of one forward of the rank that has the most of them.
  int64_t largest_micro_batch() const {
    return shares.empty() ? train.micro_batch : largest_share(shares);
  }
  // Whether each forward of a step has this many.
  bool is_even() const { return train.global_batch % sequences_per_forward() == 0; }
  // Forwards of one rank in one step, at most: a batch ramp begins with fewer.
  int64_t microbatches_per_step() const {
    return (train.global_batch + sequences_per_forward() - 1) / sequences_per_forward();
  }
  // The samples of each step, whose number is from 0 there.
  dataset::BatchSizes batch_sizes() const {
    return {train.global_batch, train.batch_ramp_start, train.batch_ramp_steps};
  }
  // Whether what is kept at a place of [offload] leaves the memory that the ranks compute in.
  bool leaves_memory(OffloadPlace place) const {
    return place == OffloadPlace::kDisk || (place == OffloadPlace::kHost && !device.is_cpu());
  }
  // The folder of what is offloaded to a disk.
  std::string offload_folder() const {
    return offload.folder.empty() ? output.folder + "/offload" : offload.folder;
  }
  // Whether each microbatch's gradients are summed over the ranks: parallel.gradient_order. Once
  // the data is open.
  bool is_rank_first() const;
  // Why that cannot be; "": it can.
  std::string reason_against_rank_first() const;
  // Whether ranks read a step's microbatches in turn, so that both orders have one tree.
  bool takes_turns() const { return train.reproducible && is_rank_first(); }
  // Whether microbatches are added in fp32 at least, whatever dtype is sent.
  bool adds_in_fp32() const {
    return is_rank_first() && !train.reproducible && microbatches_per_step() > 1;
  }
  // The dtype of weights and activations.
  c10::ScalarType dtype() const { return train.precision; }
  // The dtype in which gradients are sent.
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

// Throws: ConfigError, one line, when parallel.servers cannot be combined with another key or the
//         task, or leaves no worker, and when one of its own keys is set without it
void check_servers(const RunConfig& config, int num_ranks);
// The same for the task's model, once the data is open.
void check_served_model(const RunConfig& config);

// Throws: ConfigError, one line, when parallel.learners cannot be combined with another key or the
//         task, or does not divide the ranks, and when section [outer] is not as it must be
void check_learners(const RunConfig& config, int num_ranks);
// What learners that are runs of their own must have in common: a line for each key.
std::string common_settings(const RunConfig& config);

// Throws: ConfigError, one line, when parallel.teachers cannot be combined with another key, leaves
//         no rank that trains, or has another number of copies than the data ranks can ask
void check_teachers(const RunConfig& config, int num_ranks);
void check_teacher_copies(const RunConfig& config);

// Throws: ConfigError when parallel.gradient_order is rank-first and cannot be, once the data is
//         open
void check_gradient_order(const RunConfig& config);
// Throws: ConfigError when compression, Adasum or an optimizer that exchanges signs is combined
//         with what it excludes on any layout. Call once the numbers of ranks are resolved
void check_gradients(const RunConfig& config);

}  // namespace trireme::train
