// The digits of examples/07_own_task.cc with an annotated chain: what predict is tested with.
#include <memory>
#include <string>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "trireme/cli/program.h"
#include "trireme/dataset/csv_source.h"
#include "trireme/dataset/rows/csv_rows.h"
#include "trireme/train/annotated/annotated_task.h"
#include "trireme/train/task/task_metrics.h"

namespace {

using namespace trireme;
namespace nn = torch::nn;

class AnnotatedDigits : public train::AnnotatedTask, public train::PredictingTask {
 public:
  std::unique_ptr<Task> clone() const override { return std::make_unique<AnnotatedDigits>(*this); }
  void add_keys(train::Keys& /*keys*/) override {}
  void open(bool evaluates) override {
    const dataset::CsvOptions options{.target = "digit"};
    training_ = std::make_shared<dataset::CsvSource>("digits.csv", options);
    if (!evaluates) return;
    validation_ =
        std::make_shared<dataset::CsvSource>("digits.validation.csv", options, training_.get());
  }
  const dataset::Source& training() const override { return *training_; }
  const dataset::Source* validation() const override { return validation_.get(); }
  train::TaskTraits traits() const override {
    return {.data_name = "digits", .metrics = {{.name = "accuracy"}}};
  }

  train::AnnotatedNet make_net() const override {
    train::AnnotatedNet net;
    net.add("hidden", nn::Sequential(nn::Linear(training_->num_numbers(), 33), nn::ReLU()));
    net.add("head", nn::Linear(33, training_->num_classes()));
    return net;
  }
  spmd::Annotations annotations() const override {
    return {.parameters = {{"hidden.*", spmd::split(0, "tensor")},
                           {"head.weight", spmd::split(1, "tensor")}},
            .inputs = {{"x", spmd::split(0, "data")}}};
  }
  at::Tensor loss_sum(const at::Tensor& logits_BC, const train::StageInput& batch) const override {
    return nn::functional::cross_entropy(
        logits_BC, batch["y"], nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
  }
  at::Tensor metric_states(const at::Tensor& logits_BC,
                           const train::StageInput& batch) const override {
    return train::accuracy_state(logits_BC, batch["y"]);
  }

  std::unique_ptr<train::Predictor> make_predictor(const train::PredictRequest& request) override {
    open(/*evaluates=*/false);
    return annotated_predictor(
        request, {.open = [this](auto paths) { return dataset::open_csv_rows(paths, *training_); },
                  .answer =
                      [this, top = request.top](const at::Tensor& logits_BC) {
                        return train::class_answers(logits_BC, training_->classes(), top);
                      }});
  }
  std::unique_ptr<Task> make_answering(const train::PredictRequest& /*request*/) override {
    return answering_module();
  }

 private:
  std::shared_ptr<const dataset::CsvSource> training_;
  std::shared_ptr<const dataset::CsvSource> validation_;
};

constexpr train::TaskKind kTasks[] = {
    {"digits", "read handwritten digits",
     []() -> std::unique_ptr<train::Task> { return std::make_unique<AnnotatedDigits>(); }}};

}  // namespace

int main(int argc, char** argv) { return cli::run_program(argc, argv, {.tasks = kTasks}); }
