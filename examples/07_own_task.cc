// A program of your own: a model, its data and its loss, with everything that `trireme train` has.
// It learns to read handwritten digits from a table of 64 pixels per row.
//
//   python3 examples/digits.py digits    (writes digits.csv and digits.validation.csv)
//   build/release/bin/example_07_own_task train --ranks 2 --parallel.zero=3
//   build/release/bin/example_07_own_task train --help    (its keys are among them)
//   build/release/bin/example_07_own_task predict runs/demo digits.validation.csv
//
// Kill it at any moment, and the same command resumes with the same bits.
#include <memory>
#include <string>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "trireme/cli/program.h"
#include "trireme/dataset/csv_source.h"
#include "trireme/dataset/rows/csv_rows.h"
#include "trireme/train/chain_task.h"

namespace {

using namespace trireme;
namespace nn = torch::nn;

struct DigitsModel {
  TRIREME_KEYS_BEGIN(DigitsModel)
  TRIREME_KEY(int64_t, width, 128, kMustStay, "width of the hidden layers", Range{1, 65536})
  TRIREME_KEY(int64_t, layers, 2, kMustStay, "number of hidden layers", Range{1, 1000})
  TRIREME_KEYS_END()
};

struct DigitsData {
  TRIREME_KEYS_BEGIN(DigitsData)
  TRIREME_KEY(std::string, path, "digits", kMustStay,
              "prefix of the data files PATH.csv and PATH.validation.csv")
  TRIREME_KEYS_END()
};

class Digits : public train::ChainTask, public train::PredictingTask {
 public:
  std::unique_ptr<Task> clone() const override { return std::make_unique<Digits>(*this); }

  void add_keys(train::Keys& keys) override {
    keys.add("model", model_);
    keys.add("data", data_);
  }

  void open(bool evaluates) override {
    const dataset::CsvOptions options{.target = "digit"};
    training_ = std::make_shared<dataset::CsvSource>(data_.path + ".csv", options);
    if (!evaluates) return;
    validation_ = std::make_shared<dataset::CsvSource>(data_.path + ".validation.csv", options,
                                                       training_.get());
  }
  const dataset::Source& training() const override { return *training_; }
  const dataset::Source* validation() const override { return validation_.get(); }
  train::TaskTraits traits() const override {
    return {.data_name = data_.path, .metrics = {{.name = "accuracy"}}};
  }

  // Each link is a unit of ZeRO-3 and of recompute, and a layer of pipelines.
  train::Chain make_chain() const override {
    train::Chain chain;
    int64_t width = training_->num_numbers();
    for (int64_t layer = 0; layer < model_.layers; ++layer) {
      chain.add("hidden" + std::to_string(layer),
                nn::Sequential(nn::Linear(width, model_.width), nn::ReLU(),
                               nn::LayerNorm(nn::LayerNormOptions({model_.width}))));
      width = model_.width;
    }
    chain.add("head", nn::Linear(width, training_->num_classes()));
    return chain;
  }

  at::Tensor loss_sum(const at::Tensor& logits_BC, const train::StageInput& batch) const override {
    return nn::functional::cross_entropy(
        logits_BC, batch["y"], nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
  }

  at::Tensor metric_states(const at::Tensor& logits_BC,
                           const train::StageInput& batch) const override {
    return train::accuracy_state(logits_BC, batch["y"]);
  }

  // `predict` reads tables without the digit. The columns and classes are those of the data.
  std::unique_ptr<train::Predictor> make_predictor(const train::PredictRequest& request) override {
    if (!request.data.empty()) data_.path = request.data;
    open(/*evaluates=*/false);
    return chain_predictor(
        request, {.open = [this](auto paths) { return dataset::open_csv_rows(paths, *training_); },
                  .answer =
                      [this, top = request.top](const at::Tensor& logits_BC) {
                        return train::class_answers(logits_BC, training_->classes(), top);
                      }});
  }
  // With --ranks.
  std::unique_ptr<Task> make_answering(const train::PredictRequest& /*request*/) override {
    return answering_chain();
  }

 private:
  DigitsModel model_;
  DigitsData data_;
  std::shared_ptr<const dataset::CsvSource> training_;
  std::shared_ptr<const dataset::CsvSource> validation_;
};

constexpr train::TaskKind kTasks[] = {
    {"digits", "read handwritten digits",
     []() -> std::unique_ptr<train::Task> { return std::make_unique<Digits>(); }}};

}  // namespace

int main(int argc, char** argv) {
  return cli::run_program(argc, argv, {.tasks = kTasks, .description = "Learns to read digits."});
}
