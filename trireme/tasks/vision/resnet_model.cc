#include <memory>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/model/resnet/resnet.h"
#include "trireme/tasks/vision/image_model.h"
#include "trireme/train/chain_model.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {
namespace {

int depth_of(ImageFamily family) {
  switch (family) {
    case ImageFamily::kResNet18: return 18;
    case ImageFamily::kResNet34: return 34;
    case ImageFamily::kResNet50: return 50;
    case ImageFamily::kResNet101: return 101;
    case ImageFamily::kResNet152: return 152;
    case ImageFamily::kVit: break;
  }
  TRIREME_ASSERT(false, "a ResNet of another family");
}

train::Chain make_chain(const ImageProblem& problem) {
  const ImageModelConfig& config = problem.config.model;
  const model::ResNetConfig network{.depth = depth_of(config.family),
                                    .channels = problem.shape.channels,
                                    .classes = problem.config.vit.classes,
                                    .has_small_stem = config.stem == ResNetStem::kSmall,
                                    .channels_last = config.channels_last};
  train::Chain chain;
  for (model::ResNetPart& part : model::resnet_parts(network, problem.shape.height)) {
    chain.add(std::move(part.name), std::move(part.make), {part.flops, part.activations});
  }
  return chain;
}

// A stage that has the whole model, and gives the logits.
class ResNetClassifier : public ImageClassifier {
 public:
  explicit ResNetClassifier(std::unique_ptr<train::StageModel> stage) : stage_(std::move(stage)) {}
  torch::nn::Module& module() override { return stage_->module(); }
  at::Tensor logits(const at::Tensor& images_BCHW) override {
    return stage_->forward({.tensors = {{"image", images_BCHW}}}).front();
  }

 private:
  std::unique_ptr<train::StageModel> stage_;
};

train::ChainGoal goal_of(const ImageProblem& problem, uint64_t seed) {
  const auto images = std::make_shared<const ImageGoal>(problem.config, problem.shape, seed);
  return {
      .input = "image",
      .targets = {"label"},
      .prepare =
          [images](const at::Tensor& input, at::ScalarType dtype, const train::StageInput& batch) {
            return images->prepare(input, dtype, batch);
          },
      .loss_sum =
          [images](const at::Tensor& logits_BC, const train::StageInput& batch) {
            return images->loss_sum(logits_BC, batch);
          },
      .metric_states = &ImageGoal::metric_states,
      .gives_output = problem.is_answering};
}

class ResNetModel : public train::ChainModel {
 public:
  explicit ResNetModel(const ImageProblem& problem)
      : ChainModel([&problem] { return make_chain(problem); },
                   [&problem](uint64_t seed) { return goal_of(problem, seed); }),
        problem_(problem) {}

  train::ModelTraits traits() const override {
    train::ModelTraits traits = ChainModel::traits();
    traits.name = name_of_model(problem_);
    return traits;
  }

 private:
  const ImageProblem& problem_;
};

}  // namespace

std::unique_ptr<train::TaskModel> make_resnet_model(const ImageProblem& problem) {
  return std::make_unique<ResNetModel>(problem);
}

std::unique_ptr<ImageClassifier> make_resnet_classifier(const ImageProblem& problem,
                                                        const train::RunConfig& config) {
  train::ChainGoal logits = goal_of(problem, config.train.seed);
  logits.gives_output = true;
  return std::make_unique<ResNetClassifier>(
      ResNetModel(problem).make_stage({.config = config, .axes = {}, .part = {}}, logits));
}

}  // namespace trireme::tasks
