// predict: a trained model's answers to new rows.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
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
#include "trireme/cli/predict/prediction_writer.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/saved_run.h"
#include "trireme/train/task/predictor.h"

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
};

// Collects rows into batches, and writes the answers to each.
class BatchedAnswers {
 public:
  BatchedAnswers(train::Predictor& predictor, PredictionWriter& writer, int64_t batch)
      : predictor_(predictor), writer_(writer), most_(static_cast<size_t>(batch)) {}

  void add(dataset::Row row) {
    rows_.push_back(std::move(row));
    if (rows_.size() == most_) flush();
  }
  void flush() {
    if (rows_.empty()) return;
    const std::vector<train::Answer> answers = predictor_.answer(stacked());
    TRIREME_ASSERT(answers.size() == rows_.size(), "a task gave ", answers.size(), " answers to ",
                   rows_.size(), " rows");
    for (size_t i = 0; i < rows_.size(); ++i) writer_.write(rows_[i], answers[i]);
    rows_.clear();
  }

 private:
  dataset::Batch stacked() const {
    dataset::Batch batch;
    for (size_t t = 0; t < rows_.front().sample.size(); ++t) {
      std::vector<at::Tensor> values;
      for (const dataset::Row& row : rows_) values.push_back(row.sample.at(t).second);
      batch.tensors.emplace_back(rows_.front().sample[t].first, at::stack(values));
    }
    batch.step_size = batch.size();
    return batch;
  }

  train::Predictor& predictor_;
  PredictionWriter& writer_;
  size_t most_;
  std::vector<dataset::Row> rows_;
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

int predict(const PredictArguments& arguments, const train::Offer& offer) {
  const c10::NoGradGuard no_grad;
  const auto weights = arguments.average ? train::Weights::kAverage : train::Weights::kLast;
  const train::SavedModel saved(arguments.run, weights);
  train::RunConfig config = saved_config(saved, offer);
  auto* const task = dynamic_cast<train::PredictingTask*>(&*config.task);
  TRIREME_CHECK(task != nullptr, "the task ", shown(config.task_choice.name), " of ",
                saved.folder().string(),
                " does not predict; a task of your own does when it is a PredictingTask "
                "(docs/guide/tasks.md)");
  PredictionWriter writer(arguments.output,
                          choose(kPredictionFormats, "--format", arguments.format));
  const auto predictor = task->make_predictor({.saved = saved,
                                               .config = config,
                                               .data = arguments.data,
                                               .input_format = arguments.input_format,
                                               .top = arguments.top});
  const auto rows = predictor->open(arguments.inputs);
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar bar("predict", rows->unit(), stderr);
    BatchedAnswers answers(*predictor, writer, arguments.batch);
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
          app.get_name() +
          " predict runs/dlrm day_1.tsv.gz --output clicks.csv --format csv\n"
          "Runs on the CPU of this host, from a checkpoint of any layout. See "
          "docs/guide/predict.md.\n");
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
  command->callback([arguments, offer, &exit_code] { exit_code = predict(*arguments, offer); });
}

}  // namespace trireme::cli
