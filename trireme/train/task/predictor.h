// What `predict` asks of a task: the answers of a trained model to rows without labels. A task that
// has answers is also a PredictingTask.
//
//   class Digits : public ChainTask, public PredictingTask { ... };
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/dataset/batch_loader.h"
#include "trireme/dataset/rows/row_source.h"

namespace trireme::train {

class SavedModel;
class StageModel;
class Task;
struct RunConfig;

// What the model says of a row. All answers of a model have as many classes, and the same numbers.
struct Answer {
  struct Class {
    std::string name;
    double probability = 0;
  };
  std::vector<Class> classes{};                           // the most probable first
  std::vector<std::pair<std::string, double>> numbers{};  // such as {"probability", 0.2}
};

// Not thread safe.
class Predictor {
 public:
  virtual ~Predictor() = default;
  // Opens inputs of a command line: files, or folders where the task has such.
  // Throws: ConfigError with the input that cannot be used
  virtual std::unique_ptr<dataset::RowSource> open(std::span<const std::string> inputs) = 0;
  // What the model says of rows of open(). Only with PredictRequest::has_model.
  virtual at::Tensor outputs(const dataset::Batch& batch) = 0;
  // The answers that it means, one per row of the batch.
  virtual std::vector<Answer> answers(const at::Tensor& outputs) = 0;
};

// What a task that predicts adds to a model that gives an output for a batch of rows.
struct OutputAnswers {
  // The rows of inputs, with the tensors that the model takes.
  std::function<std::unique_ptr<dataset::RowSource>(std::span<const std::string> inputs)> open{};
  // output: of a batch -> one answer per row
  std::function<std::vector<Answer>(const at::Tensor& output)> answer{};
};
// stage: has the whole model with its weights, and gives its output; null: other ranks have it
std::unique_ptr<Predictor> make_output_predictor(std::unique_ptr<StageModel> stage,
                                                 OutputAnswers answers);

// A checkpoint to predict with. All must outlive the predictor, as must the task.
struct PredictRequest {
  const SavedModel& saved;
  const RunConfig& config;     // the saved one, which has the task
  std::string data{};          // where the run's data is now; "": where it was
  std::string input_format{};  // of the rows; "": the task tells it
  int64_t top = 1;             // the number of classes per answer, at most; 0: all
  // Whether the predictor has the model, on one rank. Otherwise that of make_answering() is asked.
  bool has_model = true;
};

class PredictingTask {
 public:
  virtual ~PredictingTask() = default;
  // The model with its trained weights, on one rank. Reads no more of the data than it needs, such
  // as the names of classes.
  // Throws: ConfigError, also when the run has no answers to rows, with the command to use instead;
  //         CheckpointError when the weights do not fit
  virtual std::unique_ptr<Predictor> make_predictor(const PredictRequest& request) = 0;
  // A task whose model ranks share to answer rows: its stages read tensors that rows have, and the
  // last one writes Predictor::outputs() of them as "scores". It is asked after make_predictor().
  // Null: the task predicts on one rank.
  virtual std::unique_ptr<Task> make_answering(const PredictRequest& request);
};

// The softmax of the logits, in fp64 on the CPU.
at::Tensor class_probabilities(const at::Tensor& logits_BC);
// The classes of each row by class_probabilities(). Of equal ones the
// first comes first. A class without a name gets its number.
// Shapes: logits_BC [B, C] -> B answers of min(top, C) classes, of all if top is 0
std::vector<Answer> class_answers(const at::Tensor& logits_BC, std::span<const std::string> names,
                                  int64_t top);
// Shapes: logits_B [B] of clicks and the like -> B answers with "probability", by the logistic
//         function in fp64
std::vector<Answer> click_answers(const at::Tensor& logits_B);

}  // namespace trireme::train
