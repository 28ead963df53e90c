#include "trireme/tasks/vision/image_predictor.h"

#include <utility>

#include "trireme/base/error.h"
#include "trireme/dataset/rows/image_rows.h"
#include "trireme/remote/store_files.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {
namespace {

ImageProblem problem_with(ImageProblem problem, const TrainedImages& images) {
  problem.take_images(images.shape, std::ssize(images.classes), kTrainedImagesFile);
  return problem;
}

class ImagePredictor : public train::Predictor {
 public:
  ImagePredictor(const train::PredictRequest& request, const ImageProblem& problem,
                 const TrainedImages& images)
      : problem_(problem_with(problem, images)), classes_(images.classes), top_(request.top) {
    check_images(problem_);
    if (!request.has_model) return;
    request.saved.require_room(make_image_model(problem_)->traits().num_parameters,
                               request.config.dtype());
    classifier_ = make_classifier(problem_, request.config);
    request.saved.load(classifier_->module());
  }

  std::unique_ptr<dataset::RowSource> open(std::span<const std::string> inputs) override {
    return dataset::open_image_rows(inputs, {.shape = problem_.shape,
                                             .size = problem_.config.data.image_size,
                                             .num_classes = problem_.config.vit.classes,
                                             .stores = remote::open_stores(inputs)});
  }
  at::Tensor outputs(const dataset::Batch& batch) override {
    return classifier_->logits(batch["image"]);
  }
  std::vector<train::Answer> answers(const at::Tensor& outputs) override {
    return train::class_answers(outputs, classes_, top_);
  }

 private:
  ImageProblem problem_;
  std::vector<std::string> classes_;
  int64_t top_;
  std::unique_ptr<ImageClassifier> classifier_;  // null: other ranks have the model
};

}  // namespace

ImageProblem answering_problem(ImageProblem problem, const TrainedImages& images) {
  problem = problem_with(std::move(problem), images);
  check_images(problem);
  problem.is_answering = true;
  return problem;
}

std::unique_ptr<train::Predictor> make_image_predictor(const train::PredictRequest& request,
                                                       const ImageProblem& problem,
                                                       const TrainedImages& images) {
  TRIREME_CHECK(request.input_format.empty(), "--input-format is \"", request.input_format,
                "\", and the run's rows are images, which tell their format; leave it out");
  return std::make_unique<ImagePredictor>(request, problem, images);
}

}  // namespace trireme::tasks
