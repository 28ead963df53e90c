#include "trireme/train/task/predictor.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/train/task/task.h"

namespace trireme::train {
namespace {

class OutputPredictor : public Predictor {
 public:
  OutputPredictor(std::unique_ptr<StageModel> stage, OutputAnswers answers)
      : stage_(std::move(stage)), answers_(std::move(answers)) {}
  std::unique_ptr<dataset::RowSource> open(std::span<const std::string> inputs) override {
    return answers_.open(inputs);
  }
  at::Tensor outputs(const dataset::Batch& batch) override {
    return stage_->forward({.tensors = batch.tensors}).front();
  }
  std::vector<Answer> answers(const at::Tensor& outputs) override {
    return answers_.answer(outputs);
  }

 private:
  std::unique_ptr<StageModel> stage_;
  OutputAnswers answers_;
};

}  // namespace

std::unique_ptr<Predictor> make_output_predictor(std::unique_ptr<StageModel> stage,
                                                 OutputAnswers answers) {
  return std::make_unique<OutputPredictor>(std::move(stage), std::move(answers));
}

std::unique_ptr<Task> PredictingTask::make_answering(const PredictRequest& /*request*/) {
  return nullptr;
}

at::Tensor class_probabilities(const at::Tensor& logits_BC) {
  return logits_BC.to(at::kCPU, at::kDouble).softmax(1);
}

std::vector<Answer> class_answers(const at::Tensor& logits_BC, std::span<const std::string> names,
                                  int64_t top) {
  const int64_t B = logits_BC.size(0), C = logits_BC.size(1);
  const int64_t K = top == 0 ? C : std::min(top, C);
  const auto [sorted_BC, classes_BC] =
      class_probabilities(logits_BC).sort(/*stable=*/true, 1, /*descending=*/true);
  const at::Tensor probabilities = sorted_BC.contiguous(), numbers = classes_BC.contiguous();
  const auto* probability = probabilities.const_data_ptr<double>();
  const auto* number = numbers.const_data_ptr<int64_t>();
  std::vector<Answer> answers(static_cast<size_t>(B));
  for (Answer& answer : answers) {
    for (int64_t k = 0; k < K; ++k) {
      const auto place = static_cast<size_t>(number[k]);
      answer.classes.push_back(
          {.name = place < names.size() ? names[place] : std::to_string(number[k]),
           .probability = probability[k]});
    }
    probability += C;
    number += C;
  }
  return answers;
}

std::vector<Answer> click_answers(const at::Tensor& logits_B) {
  const at::Tensor probabilities = logits_B.to(at::kCPU, at::kDouble).sigmoid().contiguous();
  const std::span<const double> values(probabilities.const_data_ptr<double>(),
                                       static_cast<size_t>(probabilities.numel()));
  std::vector<Answer> answers;
  for (const double value : values) answers.push_back({.numbers = {{"probability", value}}});
  return answers;
}

}  // namespace trireme::train
