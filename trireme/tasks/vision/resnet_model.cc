#include <memory>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/model/resnet/resnet.h"
#include "trireme/tasks/vision/image_goal.h"
#include "trireme/tasks/vision/image_model.h"
#include "trireme/train/chain_model.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks::inline internal {
namespace {

int depth_of(ImageFamily family) {
  switch (family) {
    case ImageFamily::kResNet18: return 18;
    case ImageFamily::kResNet34: return 34;
    case ImageFamily::kResNet50: return 50;
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
  for (model::ResNetPart& part : model::make_resnet(network, problem.shape.height)) {
    chain.add(std::move(part.name), std::move(part.layer), {part.flops, part.activations});
  }
  return chain;
}

// A stage that has the whole model, and whose loss is the logits.
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

class ResNetModel : public ImageModel {
 public:
  explicit ResNetModel(const ImageProblem& problem)
      : problem_(problem), chain_([this] { return make_chain(problem_); }) {}

  std::vector<std::string> axes() const override { return {"pipeline"}; }
  void check(const train::RunConfig& config) const override { train::ChainModel::check(config); }
  std::vector<model::ParameterPlan> parameters(model::AxisSizes sizes) const override {
    return chain_.parameters(sizes);
  }
  int64_t num_parameters() const override { return chain_.num_parameters(); }
  bool has_batch_norm() const override { return true; }
  double flops() const override { return chain_.flops(); }
  std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config) const override {
    return chain_.layer_costs(config);
  }
  std::vector<train::StageEdges> edges(int num_stages) const override {
    return chain_.edges(num_stages, goal(/*seed=*/0));
  }
  std::unique_ptr<train::StageModel> make_stage(const train::StageRequest& request) const override {
    return chain_.make_stage(request, goal(request.config.train.seed));
  }

  std::unique_ptr<ImageClassifier> make_classifier(const train::RunConfig& config) const override {
    train::ChainGoal logits = goal(config.train.seed);
    logits.loss_sum = [](const at::Tensor& output, const train::StageInput& /*batch*/) {
      return output;
    };
    logits.metric_states = nullptr;
    return std::make_unique<ResNetClassifier>(
        chain_.make_stage({.config = config, .axes = {}, .part = {}}, logits));
  }

 private:
  train::ChainGoal goal(uint64_t seed) const {
    const auto images = std::make_shared<const ImageGoal>(problem_.config, problem_.shape, seed);
    return {.input = "image",
            .targets = {"label"},
            .prepare =
                [images](const at::Tensor& input, at::ScalarType dtype,
                         const train::StageInput& batch) {
                  return images->prepare(input, dtype, batch);
                },
            .loss_sum =
                [images](const at::Tensor& logits_BC, const train::StageInput& batch) {
                  return images->loss_sum(logits_BC, batch);
                },
            .metric_states = &ImageGoal::metric_states};
  }

  const ImageProblem& problem_;
  train::ChainModel chain_;
};

}  // namespace

std::unique_ptr<ImageModel> make_resnet_model(const ImageProblem& problem) {
  return std::make_unique<ResNetModel>(problem);
}

}  // namespace trireme::tasks::inline internal
