#include "trireme/tasks/language/recording/record_outputs.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/folder.h"
#include "trireme/dataset/batch_reader.h"
#include "trireme/dataset/file/journal.h"
#include "trireme/dataset/file/unfinished_work.h"
#include "trireme/dataset/prepare.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/tasks/language/language.h"
#include "trireme/tasks/language/outputs/outputs_writer.h"
#include "trireme/tasks/language/outputs/teacher_outputs.h"
#include "trireme/tasks/language/teacher.h"
#include "trireme/tasks/language/token_data.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/run/compute_device.h"
#include "trireme/train/run/inputs.h"
#include "trireme/train/state/frozen_model.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;

// What the ranks have of one sample: 2k + 1 numbers for each token, see LanguageStage.
SampleOutputs outputs_of(const at::Tensor& rows_NTn) {
  const int64_t k = (rows_NTn.size(2) - 1) / 2;
  return {.tokens_NTk = rows_NTn.narrow(2, 0, k).to(at::kLong),
          .log_p_NTk = rows_NTn.narrow(2, k, k),
          .log_rest_NT = rows_NTn.select(2, 2 * k)};
}

// Samples are read in order, one microbatch of every rank at a time, so that those of a moment
// follow each other in the file.
class Recorder {
 public:
  // writer: on rank 0
  Recorder(const train::RunConfig& config, const mesh::DeviceMesh& mesh,
           train::ParallelModel& teacher, const RecordOptions& options, OutputsWriter* writer)
      : config_(config), mesh_(mesh), teacher_(teacher), options_(options), writer_(writer) {}

  // Those behind the first `num_written`.
  void record(OutputsOf data, const dataset::Source& source, int64_t num_written) {
    dataset::BatchOptions batches = train::validation_batches(config_, mesh_, source.size());
    batches.in_turn = true;
    dataset::BatchReader reader(source, batches,
                                train::read_ahead(config_, mesh_.world(), /*num_steps=*/1));
    const int64_t at_once = mesh_.size("pipeline");
    const int64_t num_microbatches = reader.loader().num_microbatches(0);
    // Microbatches are read whole, so that a sample is computed beside the same ones.
    const int64_t num_done = num_written < source.size()
                                 ? num_written / config_.sequences_per_forward()
                                 : num_microbatches;
    for (int64_t begin = num_done; begin < num_microbatches; begin += at_once) {
      const int64_t end = std::min(begin + at_once, num_microbatches);
      const int64_t first = begin * config_.sequences_per_forward();
      const int64_t last = std::min(end * config_.sequences_per_forward(), source.size());
      const at::Tensor rows_NTn = read(reader, begin, end, first, last);
      checkpoint::from_root(
          mesh_.world(),
          [&](const checkpoint::Peers&) {
            require_finite(rows_NTn, data, first);
            const int64_t from = std::max(first, num_written);
            writer_->write(data, from, outputs_of(rows_NTn.narrow(0, from - first, last - from)));
            keep_sometimes();
            return std::string();
          },
          options_.on_wait);
      if (options_.on_progress) options_.on_progress(last, source.size());
    }
  }

 private:
  // Every rank fills in what it has; rank 0 gets the sum, which adds zeros.
  at::Tensor read(dataset::BatchReader& reader, int64_t begin, int64_t end, int64_t first,
                  int64_t last) {
    std::vector<dataset::Batch> loaded;
    for (int64_t i = begin; i < end; ++i) loaded.push_back(reader.read(0, i));
    const std::vector<at::Tensor> found = teacher_.scores(loaded);
    const LanguageConfig& own = language_of(config_);
    at::Tensor rows_NTn = at::zeros(
        {last - first, own.model.sequence_length, 2 * own.recording.top_k + 1}, at::kDouble);
    for (size_t i = 0; i < found.size() && mesh_.coordinate("tensor") == 0; ++i) {
      rows_NTn.narrow(0, std::min(loaded[i].first_sample, last) - first, loaded[i].size())
          .copy_(found[i]);
    }
    mesh_.world().reduce(rows_NTn, 0)->wait();
    return rows_NTn;
  }

  void keep_sometimes() {
    const auto now = std::chrono::steady_clock::now();
    if (now - kept_ < options_.journal_interval) return;
    writer_->keep();
    kept_ = std::chrono::steady_clock::now();
  }

  void require_finite(const at::Tensor& rows_NTn, OutputsOf data, int64_t first) const {
    const at::Tensor is_bad_N =
        outputs_of(rows_NTn).log_p_NTk.isfinite().logical_not().flatten(1).any(1);
    if (!is_bad_N.any().item<bool>()) return;
    throw ConfigError(concat(
        "objective.teacher gives ", data == OutputsOf::kTraining ? "training" : "validation",
        " sample ", first + is_bad_N.nonzero()[0].item<int64_t>(),
        " log-probabilities that are not finite; take other weights, or another train.precision"));
  }

  const train::RunConfig& config_;
  const mesh::DeviceMesh& mesh_;
  train::ParallelModel& teacher_;
  const RecordOptions& options_;
  OutputsWriter* writer_;
  std::chrono::steady_clock::time_point kept_ = std::chrono::steady_clock::now();
};

// What decides a teacher's numbers beside the origin of its outputs: more than roundings.
std::string computed_by(const train::TrainConfig& train) {
  return concat(static_cast<int>(train.precision), " ", train.tf32, " ",
                static_cast<int>(train.fp32_products));
}

void on_root(comm::Communicator& world, const RecordOptions& options,
             const std::function<void()>& work) {
  checkpoint::from_root(
      world,
      [&](const checkpoint::Peers&) {
        work();
        return std::string();
      },
      options.on_wait);
}

// work: the work folder, on rank 0
RecordedOutputs record_in(const fs::path& work, const train::RunConfig& config,
                          comm::Communicator& world, const RecordOptions& options) {
  const mesh::DeviceMesh mesh(world, train::mesh_axes(config.parallel));
  const LanguageConfig& own = language_of(config);
  train::FrozenModel teacher(train::teacher_config(config).value(), mesh);
  teacher.load(config.task->traits().teacher_key, train::Weights::kLast, options.on_wait);
  for (const std::string& note : teacher.notes()) options.tell(note);
  const train::Task& task = *config.task;
  const dataset::Source* const validation = task.validation();
  RecordedOutputs result{.num_training = task.training().size(),
                         .num_validation = validation ? validation->size() : 0,
                         .sequence_length = own.model.sequence_length,
                         .vocab_size = own.model.vocab_size};
  std::optional<OutputsWriter> writer;
  const at::Tensor num_written = at::zeros({2}, at::kLong);  // of training, of validation
  on_root(world, options, [&] {
    OutputsOrigin origin =
        origin_of(own, task.identify(task.training()),
                  validation ? task.identify(*validation) : train::DataIdentity());
    origin.model = teacher.model().traits().name;
    origin.teacher = task.identify_teacher().checksums;
    writer.emplace(options.output, origin,
                   OutputsWriter::Shape{
                       .top_k = own.recording.top_k,
                       .num_training = result.num_training,
                       .num_validation = result.num_validation,
                       .dtype = config.train.precision == at::kDouble ? at::kDouble : at::kFloat},
                   OutputsWriter::Kept{.work = work, .computed = computed_by(config.train)});
    num_written[0] = writer->num_written(OutputsOf::kTraining);
    num_written[1] = writer->num_written(OutputsOf::kValidation);
  });
  world.broadcast(num_written, 0)->wait();
  result.num_resumed = num_written.sum().item<int64_t>();
  Recorder recorder(config, mesh, teacher.model(), options, writer ? &*writer : nullptr);
  recorder.record(OutputsOf::kTraining, task.training(), num_written[0].item<int64_t>());
  if (validation) {
    recorder.record(OutputsOf::kValidation, *validation, num_written[1].item<int64_t>());
  }
  on_root(world, options, [&] { result.num_bytes = writer->finish(); });
  return result;
}

}  // namespace

train::RunConfig recording_config(train::RunConfig config, int num_ranks, int64_t top_k) {
  TRIREME_CHECK(!config.parallel.automatic,
                "parallel.auto is true, which only the command `train` chooses; set the axes that "
                "divide the teacher");
  TRIREME_CHECK(config.parallel.teachers == 0, "parallel.teachers is ", config.parallel.teachers,
                ", and all ranks hold the teacher here; set it to 0");
  const train::TrainConfig given = std::exchange(config.train, {});
  config.train.precision = given.precision;
  config.train.device = given.device;
  config.train.tf32 = given.tf32;
  config.train.fp32_products = given.fp32_products;
  config.train.micro_batch = given.micro_batch;
  config.train.seed = given.seed;
  config.train.overlap = given.overlap;
  config.train.symmetric_memory = given.symmetric_memory;
  config.train.uneven_batches = true;
  config.optimizer = {};
  config.offload = {};
  config.checkpoint = {};
  config.parallel.learners = 1;
  config.outer = {};
  config.callbacks.clear();
  train::resolve(config, num_ranks);
  LanguageConfig& own = language_of(config);
  TRIREME_CHECK(own.objective.is_distill(), "objective.name is \"",
                name_of(kObjectives, own.objective.name),
                "\", which has no teacher; expected \"distill\"");
  TRIREME_CHECK(!is_file(own.objective.teacher), "objective.teacher ", shown(own.objective.teacher),
                " is a file of outputs; expected the teacher itself: a run, a checkpoint or a "
                "Hugging Face folder");
  own.recording.temperature = own.objective.temperature;
  own.data.validation_sets.clear();
  const std::string validation = dataset::validation_prefix(own.data.path);
  config.task->open(/*evaluates=*/own.data.sources.empty() &&
                    open_place(own.data)->find(validation + ".bin") != nullptr);
  TRIREME_CHECK(top_k <= own.model.vocab_size, "--top-k is ", top_k, " and the vocabulary has ",
                own.model.vocab_size, " tokens; expected at most that");
  own.recording.top_k = top_k;
  train::check_device(config);
  const std::optional<train::RunConfig> teacher = train::teacher_config(config);
  TRIREME_ASSERT(teacher.has_value(), "distillation without a teacher");
  train::check_layout(*teacher);
  return config;
}

RecordedOutputs record_outputs(const train::RunConfig& config, comm::Communicator& world,
                               const RecordOptions& options) {
  std::optional<WorkFolder> work;
  on_root(world, options, [&] { work.emplace(options.output, WorkFolder::Left::kKept); });
  RecordedOutputs result;
  const auto run = [&] {
    result = record_in(work ? work->path() : fs::path(), config, world, options);
  };
  if (!work) {
    run();
    return result;
  }
  dataset::leaving_work({.path = work->path(),
                         .has_journal = [&] { return dataset::has_journal(work->path()); },
                         .release = [&] { work->release(); }},
                        run);
  return result;
}

}  // namespace trireme::tasks
