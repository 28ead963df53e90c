// What the training loop sees of a problem, and nothing more: its config keys, its samples, this
// rank's parts of its model, and its loss. The loop, the checkpoint and the mesh know no model.
// docs/guide/tasks.md shows how to write one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/dataset/source.h"
#include "trireme/model/family/parts.h"
#include "trireme/parallel/data/shard.h"
#include "trireme/parallel/data/unit.h"
#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/plan/cost/workload.h"
#include "trireme/train/task/data_identity.h"
#include "trireme/train/task/keys.h"
#include "trireme/train/task/task_metrics.h"

namespace torch::nn {
class Module;
}
namespace trireme::parallel {
class EmbeddingTables;
}

namespace trireme::train {

class Callback;

struct CallbackKind {
  std::string_view name;
  std::unique_ptr<Callback> (*make)();
};
using CallbackTable = std::span<const CallbackKind>;

struct RunConfig;

// What a pipeline stage reads and writes, by name. An input that no stage writes is a tensor of the
// batch. The last stage writes "loss", the scalar sum over this rank's terms, and when the task has
// metrics, "metrics".
struct StageEdges {
  std::vector<std::string> inputs{};
  std::vector<std::string> outputs{};
};

// The name for the hidden state that enters stage number `stage`.
inline std::string hidden_edge(int stage) { return concat("hidden ", stage); }

struct StageInput {
  // Undefined for a name that is not among the stage's inputs.
  at::Tensor operator[](std::string_view name) const { return dataset::find_tensor(tensors, name); }

  dataset::NamedTensors tensors{};
  std::optional<model::TrainingPlace> training{};  // empty in evaluation
};

// Validation data with a name, such as "code".
struct ValidationSet {
  std::string name{};
  const dataset::Source* source = nullptr;
};

// When tables report.
enum class RunPoint { kStart, kEnd };

// Embedding tables of a stage. Their gradients count in the gradient norm, the loop updates their
// rows in each step, and checkpoints have them.
struct StageTables {
  parallel::EmbeddingTables* tables = nullptr;  // with UpdateTime::kOnStep; null: none
  double rate_factor = 1;                       // their learning rate / the optimizer's
  // Lines for the user when training begins or ends; those of rank 0 are shown. Null: none.
  // Collective: every rank of the world
  std::function<std::vector<std::string>(RunPoint when)> report = nullptr;
};

// A model, or the part of one that a pipeline stage has.
class StageModel {
 public:
  virtual ~StageModel() = default;
  // Holds the parameters, named as in the whole model.
  virtual torch::nn::Module& module() = 0;
  // The parts that run as a whole, in the order of forward. ZeRO-3 gathers them one by one.
  virtual std::vector<parallel::Unit> units() const { return {}; }
  // From now on, every unit's forward goes through `run`.
  virtual void run_units_with(parallel::RunUnit /*run*/) {}

  // Fills parts of parameters that were built without memory (ModelPart::without_memory) with their
  // values of a new run.
  virtual void initialise(std::span<const parallel::Shard> /*shards*/) {
    throw InternalError("nobody fills parameters without memory");
  }

  // Sees the microbatches of a step, or of a part of an evaluation, before the first forward. Their
  // forwards follow in this order.
  // Collective: every rank of the world
  virtual void begin_batches(std::span<const dataset::Batch> /*batches*/) {}
  // The next step's microbatches, for which begin_batches() comes later, if the run gets there.
  // Their ids can travel while this step computes. Other batches may come in between.
  // Collective: as begin_batches()
  virtual void announce_batches(std::span<const dataset::Batch> /*batches*/) {}
  // Follows the last backward of a step, before gradients are read.
  // Collective: as begin_batches()
  virtual void end_backward() {}

  // The outputs of the stage for one microbatch, in the order of its edges. "metrics" are the
  // states of all metrics, one after the other: a tensor of numbers in fp64 without a gradient.
  // Collective: every rank of the tensor and context axes
  virtual std::vector<at::Tensor> forward(const StageInput& in) = 0;
  // The last stage of the frozen model whose outputs the last stage gets as inputs
  // (Task::make_teacher). It outlives this one.
  virtual void use_teacher(StageModel& /*stage*/) {}
  // Of a frozen model's last stage that is not where the student's is: the tensors beside its
  // outputs that the student's last stage needs, the same for all batches; the first is [v, D] for
  // outputs [..., D]. The student's gets them, and outputs of whole samples, on every rank.
  // Collective: every rank of the tensor axis
  virtual std::vector<at::Tensor> head() { return {}; }
  virtual void use_teacher_head(std::vector<at::Tensor> /*head*/) {}
  // How many terms this rank's loss of `batch` sums over.
  virtual int64_t num_terms(const dataset::Batch& batch) const = 0;

  // The tables in which the stage looks ids up. Only if TaskTraits::has_tables.
  virtual StageTables tables() { return {}; }

  // An evaluation begins.
  virtual void begin_evaluation() {}
  // The metrics of the samples seen since then that are not sums over samples, such as the exact
  // area under a curve; those of TaskTraits::evaluation_metrics, in that order.
  // Collective: as begin_batches()
  virtual std::vector<double> finish_evaluation() { return {}; }

  // Adds what the stage counted in training since the last call to the counts of the whole model,
  // ModelTraits::num_counts numbers, which are then summed over all ranks.
  virtual void take_counts(std::span<double> /*counts*/) {}
  // Learns the sums of a step whose weights change.
  virtual void use_counts(std::span<const double> /*counts*/) {}
};

// The part of the model to build.
struct StageRequest {
  const RunConfig& config;
  const model::ModelAxes& axes;
  model::ModelPart part;
  int stage = 0;
};

// A number that is reported beside the loss. Each microbatch gives a state of `size` numbers that
// add up over microbatches and ranks, such as (sum, count). task_metrics.h has some.
struct Metric {
  std::string name;  // in metrics.jsonl; in evaluation "validation_<name>"
  int64_t size = 2;
  // Turns the sum of all states into the metric. NaN: undefined, such as the mean of nothing.
  double (*finish)(std::span<const double> state) = mean_of;
};

// What uses most of a run's memory, for advice: keys of the task with their values, such as
// "model.width (256)".
struct MemoryKeys {
  std::vector<std::string> states;       // make the model smaller
  std::vector<std::string> activations;  // make a sample's activations smaller
};
inline std::string with_value(std::string_view key, int64_t value) {
  return concat(key, " (", value, ")");
}

// What a task declares of itself. Its keys decide; the data need not be open.
struct TaskTraits {
  // The key that says where the data is, and its value.
  std::string data_key = "data.path";
  std::string data_name{};
  std::string samples_name = "samples";  // for people: "sequences of 256 tokens"
  // Throughput in the words of the field: metrics.jsonl has "<unit>_per_second".
  std::string unit = "samples";
  int64_t units_per_sample = 1;
  // Bytes of one sample's tensors, once the data is open; 0: see sample_bytes() below.
  double sample_bytes = 0;
  std::vector<Metric> metrics{};
  // The names of the metrics that only an evaluation has, see StageModel::finish_evaluation().
  std::vector<std::string> evaluation_metrics{};
  // The names of Task::validation_sets().
  std::vector<std::string> validation_names{};
  // How many numbers the initial model, as evaluation runs it, gives each sample: the last stage's
  // output "scores", [samples, num_scores] fp64. The loop has them computed for all samples before
  // the first step; from then on samples have them as their tensor "reference", which is 0 before.
  int64_t num_scores = 0;
  // The key that says where the weights of make_teacher() are, and its value.
  std::string teacher_key{};
  std::string teacher_name{};
  // The names of the files that write_files() writes. They go along when a checkpoint is packed or
  // made into another run; no other file does.
  std::vector<std::string> file_names{};
  // Patterns of parameters that [init] leaves at the values of a new run where the source of
  // initial weights lacks them, without init.missing.
  std::string new_parameters{};
  // The same of parameters of which a line for people says that they are new, such as a head.
  std::string new_head{};
  // Patterns of tensors of that source that the model does not have and does not need.
  std::string unread_parameters{};
  // Whether the model has embedding tables. StageRequest::axes.batch then has the ranks that read
  // different data.
  bool has_tables = false;
  // Callbacks that the task brings along. They run before the built-in ones.
  CallbackTable callbacks{};
};

// What a model declares of itself, once the data is open.
struct ModelTraits {
  std::string name{};  // for people: "llama, 6 layers, width 256, vocabulary 8192"
  // The axes besides data on which it can run: of "tensor", "context", "expert", "pipeline".
  std::vector<std::string> axes{};
  int64_t num_parameters = 0;
  // Floating-point operations of the matrix products in forward and backward of a sample, each
  // counted once however often it is computed, where train.freeze names no parameter: see
  // TaskModel::flops_per_sample(). 0: unknown.
  double flops_per_sample = 0;
  // Whether it has a model::BatchNorm, so that ranks with different data share statistics.
  bool has_batch_norm = false;
  // Whether some rows of its embedding tables are on a disk, because memory has no room for them.
  bool has_tables_on_disk = false;
  // How many numbers the layers of the whole model count in a step, such as the tokens of each
  // expert. Callbacks see their sums in StepMetrics::counts.
  int64_t num_counts = 0;
  MemoryKeys memory_keys{};
};

// The model of a task, of which each rank builds its part. The data is open, except for check().
class TaskModel {
 public:
  virtual ~TaskModel() = default;

  virtual ModelTraits traits() const = 0;
  // Checks the model's keys against each other and against the run's, without data.
  // Throws: ConfigError with the key, the value found and the value expected
  virtual void check(const RunConfig& /*config*/) const {}
  // Checks that the axes can divide the model.
  // Throws: ConfigError with the key, its value, the reason, and what to do
  virtual void check_layout(const RunConfig& /*config*/) const {}
  // Every parameter of the whole model, in its order.
  virtual std::vector<model::ParameterPlan> parameters(model::AxisSizes sizes) const = 0;
  // The layers that pipeline stages are made of, with their costs (stage_costs.h), at least one.
  virtual std::vector<parallel::LayerCost> layer_costs(const RunConfig& config) const = 0;
  // One step of a resolved config in the words of the cost model, if it knows the model.
  virtual std::optional<plan::Workload> workload(const RunConfig& /*config*/) const {
    return std::nullopt;
  }
  // The edges of each stage.
  virtual std::vector<StageEdges> edges(int num_stages) const = 0;
  // The edges of stages that have these parts of the model, if they depend on the parts.
  virtual std::vector<StageEdges> edges_of(std::span<const model::ModelPart> stages) const {
    return edges(static_cast<int>(stages.size()));
  }
  // Builds a part of the model in config.dtype(), with initial values that do not depend on the
  // layout.
  // Collective: every rank of the axes
  virtual std::unique_ptr<StageModel> make_stage(const StageRequest& request) const = 0;
  // ModelTraits::flops_per_sample of a run that may freeze parameters, and then does not compute
  // all gradients. By default it does.
  virtual double flops_per_sample(const RunConfig& /*config*/) const {
    return traits().flops_per_sample;
  }
};

// A copy has the same values and shares the open data.
class Task {
 public:
  virtual ~Task() = default;
  virtual std::unique_ptr<Task> clone() const = 0;

  // Adds the task's keys. They may be in sections of its own or in [model] and [data].
  virtual void add_keys(Keys& keys) = 0;
  virtual TaskTraits traits() const = 0;
  // The model that the keys say. Lives as long as the task.
  virtual const TaskModel& model() const = 0;
  // Checks its keys against each other and against the run's, without data; calls model().check().
  // Throws: ConfigError with the key, the value found and the value expected
  virtual void check(const RunConfig& config) const { model().check(config); }

  // Opens the data, and the validation data if `evaluates`. May fill in keys that the data decides.
  // Throws: ConfigError
  virtual void open(bool evaluates) = 0;
  // Ends reads of the open data that wait for something that may never come, such as a store, and
  // all later ones: they throw CommError within about a second. For the end of a run. Called from
  // any thread, while others read; does not throw.
  virtual void cancel_reads() const {}
  virtual const dataset::Source& training() const = 0;
  // Null without evaluation.
  virtual const dataset::Source* validation() const = 0;
  // Validation data with names, which is evaluated together with validation(), if that is not null.
  // A line of metrics.jsonl has the loss of each set as validation_loss.<name>. validation_loss and
  // all metrics are over all of it. None without evaluation.
  virtual std::vector<ValidationSet> validation_sets() const { return {}; }
  // Identifies one of the two sources, whatever its path.
  virtual DataIdentity identify(const dataset::Source& source) const {
    return identify_samples(source);
  }
  // Writes what belongs into a run's folder besides weights, such as a tokenizer.
  virtual void write_files(const std::filesystem::path& /*folder*/) const {}

  // The task of a frozen model, with config.init.folder as its weights: the outputs of its last
  // stage are inputs of this task's last stage, under their names. The data is open. Sets the keys
  // of `config`, a copy of the run's, that this model decides. Null: there is none.
  virtual std::unique_ptr<Task> make_teacher(RunConfig& /*config*/) const { return nullptr; }
  // Identifies that model's weights whatever their path. Unknown without one.
  // Throws: Error when they cannot be read
  virtual DataIdentity identify_teacher() const { return {}; }

  // Sets the keys of `config`, the task's config, that weights of another program in `folder`
  // (init.folder) decide: the model's, and the precision. They are defaults: what config file and
  // command line say is there before, to be read, and again after. Does nothing for other folders.
  // Throws: ConfigError when they are of no model that the task has; CheckpointError when the
  //         weights cannot be opened
  virtual void take_keys_of(const std::filesystem::path& /*folder*/, RunConfig& /*config*/) {}
  // Those weights under the names of the model's parameters and buffers; also those of a checkpoint
  // folder whose tensors the model keeps in another form. Null for other folders.
  // Throws: ConfigError with a key that says another model than the folder; CheckpointError when
  //         the tensors do not fit
  virtual std::unique_ptr<checkpoint::TensorSource> open_weights(
      const std::filesystem::path& /*folder*/) const {
    return nullptr;
  }
  // Lines for people on what such weights say twice, and on values that `dtype`, the run's, rounds.
  virtual std::vector<std::string> notes_on_weights(const std::filesystem::path& /*folder*/,
                                                    c10::ScalarType /*dtype*/) const {
    return {};
  }
  // Copies what belongs to a run with these initial weights from beside them, such as a chat
  // template. weights: a checkpoint of another run, or such a folder
  virtual void take_files(const std::filesystem::path& /*weights*/,
                          const std::filesystem::path& /*folder*/) const {}
};

// Bytes of one sample's tensors: as declared, or else of one that is read. The data is open.
inline double sample_bytes(const Task& task) {
  const double declared = task.traits().sample_bytes;
  return declared > 0 ? declared : dataset::sample_bytes(task.training());
}

// All that an evaluation reads: validation(), with the name "", and the sets with names.
inline std::vector<ValidationSet> all_validation(const Task& task) {
  std::vector<ValidationSet> all = task.validation_sets();
  if (task.validation() != nullptr)
    all.insert(all.begin(), ValidationSet{.source = task.validation()});
  return all;
}

// A task that programs offer by name.
struct TaskKind {
  std::string_view name;     // task.name
  std::string_view summary;  // one line
  std::unique_ptr<Task> (*make)();
};
// The tasks of a program; the first is the default.
using TaskTable = std::span<const TaskKind>;

}  // namespace trireme::train
