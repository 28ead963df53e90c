// predict: a trained model's answers to new rows.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/predict/answering_ranks.h"
#include "trireme/cli/predict/prediction_writer.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/cli/train/asked_ranks.h"
#include "trireme/comm/objects.h"
#include "trireme/train/config/config.h"
#include "trireme/train/parallel/asked_layout.h"
#include "trireme/train/state/saved_run.h"
#include "trireme/train/task/predictor.h"
#include "trireme/train/task/task.h"

namespace trireme::cli {
namespace {

struct PredictArguments {
  std::string run;
  std::vector<std::string> inputs;
  std::string output;
  std::string format = "json-lines";
  std::string data;
  std::string input_format;
  int64_t top = 1;
  int64_t batch = 32;
  bool average = false;
  AskedRanks ranks{};
  std::vector<std::string> layout{};  // as typed

  train::Weights weights() const {
    return average ? train::Weights::kAverage : train::Weights::kLast;
  }
};

// Who computes what the model says of batches.
struct AskedForRows {
  size_t num_batches = 1;  // that are computed at a time
  std::function<std::vector<at::Tensor>(std::span<const dataset::Batch> batches)> outputs;
};

dataset::Batch stacked(std::span<const dataset::Row> rows) {
  dataset::Batch batch;
  for (size_t t = 0; t < rows.front().sample.size(); ++t) {
    std::vector<at::Tensor> values;
    for (const dataset::Row& row : rows) values.push_back(row.sample.at(t).second);
    batch.tensors.emplace_back(rows.front().sample[t].first, at::stack(values));
  }
  batch.step_size = batch.size();
  return batch;
}

// Collects rows into batches, and writes the answers to each in the order of the rows.
class BatchedAnswers {
 public:
  BatchedAnswers(train::Predictor& predictor, AskedForRows asked, PredictionWriter& writer,
                 int64_t batch)
      : predictor_(predictor),
        asked_(std::move(asked)),
        writer_(writer),
        most_(static_cast<size_t>(batch)) {}

  void add(dataset::Row row) {
    rows_.push_back(std::move(row));
    if (rows_.size() == most_) close_batch();
  }
  void flush() {
    if (!rows_.empty()) close_batch();
    if (!batches_.empty()) answer();
  }

 private:
  // Of the rows, only what names them is kept.
  void close_batch() {
    batches_.push_back(stacked(rows_));
    for (dataset::Row& row : rows_) row.sample.clear();
    names_.push_back(std::exchange(rows_, {}));
    if (batches_.size() == asked_.num_batches) answer();
  }

  void answer() {
    const std::vector<at::Tensor> outputs = asked_.outputs(batches_);
    for (size_t b = 0; b < batches_.size(); ++b) {
      const std::vector<train::Answer> answers = predictor_.answers(outputs.at(b));
      TRIREME_ASSERT(answers.size() == names_[b].size(), "a task gave ", answers.size(),
                     " answers to ", names_[b].size(), " rows");
      for (size_t i = 0; i < answers.size(); ++i) writer_.write(names_[b][i], answers[i]);
    }
    batches_.clear();
    names_.clear();
  }

  train::Predictor& predictor_;
  AskedForRows asked_;
  PredictionWriter& writer_;
  size_t most_;
  std::vector<dataset::Row> rows_;
  std::vector<dataset::Batch> batches_;
  std::vector<std::vector<dataset::Row>> names_;  // by batch
};

train::RunConfig saved_config(const train::SavedModel& saved, const train::Offer& offer) {
  const std::string source = saved.folder().string();
  return train::parse_saved_model(
      saved.config(), source,
      train::default_config(offer, train::saved_task_name(saved.config(), source)));
}

// Standard output has the answers, unless they go to a file.
void print_summary(const PredictArguments& arguments, const PredictionWriter& writer,
                   const dataset::RowSource& rows, double seconds) {
  std::FILE* const stream = arguments.output.empty() ? stderr : stdout;
  const double rate = static_cast<double>(writer.num_rows()) / std::max(seconds, 1e-9);
  std::fprintf(stream, "predicted  %lld row%s in %s, %s rows/s\n",
               static_cast<long long>(writer.num_rows()), writer.num_rows() == 1 ? "" : "s",
               human_duration(seconds).c_str(), human_count(rate).c_str());
  if (!rows.left_out().empty()) std::fprintf(stream, "left out   %s\n", rows.left_out().c_str());
  if (!arguments.output.empty())
    std::fprintf(stream, "wrote      %s\n", printable(arguments.output).c_str());
}

train::PredictingTask& predicting_task(const train::SavedModel& saved, train::RunConfig& config) {
  auto* const task = dynamic_cast<train::PredictingTask*>(&*config.task);
  TRIREME_CHECK(task != nullptr, "the task ", shown(config.task_choice.name), " of ",
                saved.folder().string(),
                " does not predict; a task of your own does when it is a PredictingTask "
                "(docs/guide/tasks.md)");
  return *task;
}

// Reads the inputs, and writes the answers to all their rows.
void answer_inputs(const PredictArguments& arguments, train::Predictor& predictor,
                   const AskedForRows& asked, PredictionWriter& writer) {
  const auto rows = predictor.open(arguments.inputs);
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar bar("predict", rows->unit(), stderr);
    BatchedAnswers answers(predictor, asked, writer, arguments.batch);
    rows->read([&](dataset::Row row) {
      answers.add(std::move(row));
      bar.update(rows->num_done(), rows->num_total());
    });
    answers.flush();
  }
  TRIREME_CHECK(writer.num_rows() > 0, "the inputs have no rows; expected at least one");
  writer.finish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  print_summary(arguments, writer, *rows, seconds.count());
}

std::unique_ptr<PredictionWriter> open_output(const PredictArguments& arguments) {
  return std::make_unique<PredictionWriter>(
      arguments.output, choose(kPredictionFormats, "--format", arguments.format));
}

// The run, and what answers its rows.
class Prediction {
 public:
  Prediction(const PredictArguments& arguments, const train::Offer& offer, bool has_model)
      : saved_(arguments.run, arguments.weights()),
        config_(saved_config(saved_, offer)),
        task_(predicting_task(saved_, config_)),
        request_{.saved = saved_,
                 .config = config_,
                 .data = arguments.data,
                 .input_format = arguments.input_format,
                 .top = arguments.top,
                 .has_model = has_model},
        predictor_(task_.make_predictor(request_)) {}

  const std::filesystem::path& folder() const { return saved_.folder(); }
  train::Predictor& predictor() { return *predictor_; }

  // Throws: ConfigError when the task or the model cannot be shared so
  train::RunConfig shared_config(const PredictArguments& arguments, const train::Offer& offer,
                                 int num_ranks) {
    std::unique_ptr<train::Task> answering = task_.make_answering(request_);
    TRIREME_CHECK(answering != nullptr, "the task ", shown(config_.task_choice.name), " of ",
                  saved_.folder().string(),
                  " predicts on one rank; leave out --ranks and --parallel keys, or give it "
                  "make_answering() (docs/guide/tasks.md)");
    train::RunConfig defaults = train::default_config(offer, config_.task_choice.name);
    defaults.train.device = train::DeviceChoice::kCpu;
    return train::asked_config(config_, std::move(defaults), std::move(answering),
                               parse_overrides(arguments.layout), num_ranks);
  }

 private:
  train::SavedModel saved_;
  train::RunConfig config_;
  train::PredictingTask& task_;
  train::PredictRequest request_;
  std::unique_ptr<train::Predictor> predictor_;
};

void predict_alone(const PredictArguments& arguments, const train::Offer& offer) {
  if (arguments.ranks.num_threads > 0) use_threads(arguments.ranks.num_threads);
  const std::unique_ptr<PredictionWriter> writer = open_output(arguments);
  Prediction prediction(arguments, offer, /*has_model=*/true);
  train::Predictor& predictor = prediction.predictor();
  answer_inputs(arguments, predictor,
                {.outputs =
                     [&](std::span<const dataset::Batch> batches) {
                       return std::vector<at::Tensor>{predictor.outputs(batches.front())};
                     }},
                *writer);
}

// Rank 0 reads and writes.
int predict_on_ranks(const PredictArguments& arguments, const train::Offer& offer, int num_ranks) {
  Prediction prediction(arguments, offer, /*has_model=*/false);
  const train::RunConfig config = prediction.shared_config(arguments, offer, num_ranks);
  const auto work = [&](train::RunConfig& own, comm::Communicator& world) {
    const c10::NoGradGuard no_grad;
    std::unique_ptr<PredictionWriter> writer;
    if (world.rank() == 0) writer = open_output(arguments);
    // A run that goes on may save the next one meanwhile.
    own.init.folder = comm::broadcast_string(world, prediction.folder().string(), 0);
    AnsweringRanks ranks(own, world, arguments.weights());
    if (!writer) return ranks.serve();
    answer_inputs(arguments, prediction.predictor(),
                  {.num_batches = ranks.num_copies(),
                   .outputs = [&](auto batches) { return ranks.outputs(batches); }},
                  *writer);
    ranks.finish();
  };
  return run_on_ranks(arguments.ranks, config, work);
}

int predict(const PredictArguments& arguments, const train::Offer& offer) {
  const c10::NoGradGuard no_grad;
  const int num_ranks = count_ranks(arguments.ranks);
  if (num_ranks > 1 || !arguments.layout.empty())
    return predict_on_ranks(arguments, offer, num_ranks);
  predict_alone(arguments, offer);
  return kDone;
}

}  // namespace

void add_predict(CLI::App& app, int& exit_code, const train::Offer& offer) {
  auto arguments = std::make_shared<PredictArguments>();
  CLI::App* command = app.add_subcommand(
      "predict",
      "Predict with a trained model: a row of answers for each image, text or row of features.\n"
      "  " +
          app.get_name() +
          " predict runs/vision photo.png images/ --top 3\n"
          "  " +
          app.get_name() + " predict runs/dlrm day_1.tsv.gz --output clicks.csv --format csv\n  " +
          app.get_name() +
          " predict runs/large images/ --ranks 2 --parallel.tensor=2\n"
          "Runs on CPUs, from a checkpoint of any layout. See docs/guide/predict.md.\n");
  command->add_option("run", arguments->run, "folder of a run, or one of its checkpoints")
      ->required();
  command
      ->add_option("inputs", arguments->inputs,
                   "what to predict: image files and folders, files of texts, or rows in the raw "
                   "form of the training data")
      ->required();
  command->add_option("--output", arguments->output,
                      "file to write; it appears when it is complete. Default: standard output");
  command->add_option("--format", arguments->format, "form of the answers: json-lines or csv")
      ->check(CLI::IsMember(names_of(kPredictionFormats)))
      ->capture_default_str();
  command
      ->add_option("--top", arguments->top,
                   "number of classes per row, the most probable first; 0 = all")
      ->check(within({0, 1e9}))
      ->capture_default_str();
  command->add_option("--batch", arguments->batch, "rows per forward")
      ->check(within({1, 1 << 20}))
      ->capture_default_str();
  command->add_option("--data", arguments->data,
                      "path of the run's data, of which some tasks read names or dictionaries. "
                      "Default: the run's data.path");
  command->add_option("--input-format", arguments->input_format,
                      "form of the inputs, as `data prepare --format` names it, or lines for "
                      "texts. Default: told from the run and the files' names");
  command->add_flag("--average", arguments->average,
                    "use the moving average of the weights (average.decay)");
  add_ranks(*command, arguments->ranks);
  add_layout_help(*command);
  command->callback([command, arguments, offer, &exit_code] {
    arguments->layout = command->remaining();
    exit_code = predict(*arguments, offer);
  });
}

}  // namespace trireme::cli
