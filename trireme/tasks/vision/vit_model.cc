#include <memory>
#include <utility>

#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/model/family/init.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/model/vit/image_transformer.h"
#include "trireme/model/vit/vit_config.h"
#include "trireme/model/vit/vit_plan.h"
#include "trireme/tasks/vision/image_model.h"
#include "trireme/tasks/vision/part_costs.h"
#include "trireme/train/config/config.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::tasks {
namespace {

class VitStage : public train::StageModel {
 public:
  VitStage(std::unique_ptr<model::ImageTransformer> model, ImageGoal goal, bool is_answering,
           const train::StageRequest& request)
      : model_(std::move(model)),
        goal_(std::move(goal)),
        is_answering_(is_answering),
        seed_(request.config.train.seed),
        part_(request.part),
        dtype_(request.config.dtype()),
        hidden_(train::hidden_edge(request.stage)) {}

  torch::nn::Module& module() override { return model_->module(); }
  std::vector<parallel::Unit> units() const override { return model_->units(); }
  void run_units_with(parallel::RunUnit run) override { model_->run_units_with(std::move(run)); }

  void initialise(std::span<const parallel::Shard> shards) override {
    model::initialise(shards, seed_, model::vit_initialiser);
  }

  std::vector<at::Tensor> forward(const train::StageInput& in) override {
    const at::Tensor labels_B = in["label"];
    const int64_t B = (is_answering_ ? in["image"] : labels_B).size(0);
    model::ImagePartInput input{.num_images = B, .hidden = in[hidden_], .training = in.training};
    if (part_.embeds) input.images = goal_.prepare(in["image"], dtype_, in);
    const at::Tensor hidden = model_->forward_part(input);
    if (!part_.has_head) return {hidden};
    const at::Tensor logits_BC = model_->logits(hidden, B);
    if (is_answering_) return {logits_BC};
    // Without the class token this rank has no image's loss.
    const train::StageInput own{.tensors = {{"label", labels_B.narrow(0, 0, logits_BC.size(0))}},
                                .training = in.training};
    return {goal_.loss_sum(logits_BC, own), ImageGoal::metric_states(logits_BC.detach(), own)};
  }

  int64_t num_terms(const dataset::Batch& batch) const override {
    return model_->num_terms(batch.size());
  }

 private:
  std::unique_ptr<model::ImageTransformer> model_;
  ImageGoal goal_;
  bool is_answering_;
  uint64_t seed_;
  model::ModelPart part_;
  at::ScalarType dtype_;
  std::string hidden_;
};

class VitClassifier : public ImageClassifier {
 public:
  VitClassifier(std::unique_ptr<model::ImageTransformer> model, ImageGoal goal,
                at::ScalarType dtype)
      : model_(std::move(model)), goal_(std::move(goal)), dtype_(dtype) {}
  torch::nn::Module& module() override { return model_->module(); }
  at::Tensor logits(const at::Tensor& images_BCHW) override {
    return model_->logits_of(goal_.prepare(images_BCHW, dtype_, {}));
  }

 private:
  std::unique_ptr<model::ImageTransformer> model_;
  ImageGoal goal_;
  at::ScalarType dtype_;
};

ImageGoal goal_of(const ImageProblem& problem, const train::RunConfig& config) {
  return {problem.config, problem.shape, config.train.seed};
}

class VitModel : public train::TaskModel {
 public:
  explicit VitModel(const ImageProblem& problem) : problem_(problem) {}

  train::ModelTraits traits() const override {
    return {
        .name = name_of_model(problem_),
        .axes = {"tensor", "context", "pipeline"},
        .num_parameters = model::num_parameters(vit()),
        .flops_per_sample = model::flops_per_image(vit()),
        .memory_keys = {.states = {train::with_value("model.layers", vit().layers),
                                   train::with_value("model.width", vit().width),
                                   train::with_value("model.ffn_width", vit().ffn_width)},
                        .activations = {train::with_value("data.image_size", vit().image_size)}}};
  }
  void check(const train::RunConfig& /*config*/) const override {
    model::VitConfig config = problem_.config.vit;
    config.image_size = config.patch_size;  // the data's is not known yet
    model::validate(config);
  }
  void check_layout(const train::RunConfig& config) const override {
    model::check_axes(vit().block_config(),
                      {.tensor = config.parallel.tensor,
                       .context = config.parallel.context,
                       .context_form = config.parallel.context_form},
                      "the number of an image's tokens");
  }
  std::vector<model::ParameterPlan> parameters(model::AxisSizes sizes) const override {
    return model::make_vit_plan(vit(), sizes.tensor).parameters();
  }
  std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config) const override {
    const model::VitCosts flops = model::vit_flops(vit());
    const model::VitCosts parameters = model::vit_parameters(vit());
    const auto kept_by = [&](const model::RecomputePlan& plan) {
      return model::vit_kept_bytes(vit(), {.num_images = config.largest_micro_batch(),
                                           .dtype = config.dtype(),
                                           .recompute = plan,
                                           .tensor = config.parallel.tensor,
                                           .sequence = config.parallel.sequence_parallel,
                                           .context = config.parallel.context});
    };
    const double per_parameter = train::state_bytes_per_parameter(config, vit().width);
    const model::VitCosts states{
        .embeddings = parameters.embeddings * per_parameter,
        .block = parameters.block * per_parameter / static_cast<double>(config.parallel.tensor),
        .head = parameters.head * per_parameter};
    return block_costs(config, vit().layers, flops, states, kept_by);
  }

  // Labels go to every stage, for their number; without them images do.
  std::vector<train::StageEdges> edges(int num_stages) const override {
    const bool answers = problem_.is_answering;
    std::vector<train::StageEdges> result;
    for (int stage = 0; stage < num_stages; ++stage) {
      train::StageEdges edges{.outputs = {train::hidden_edge(stage + 1)}};
      if (!answers) edges.inputs.emplace_back("label");
      if (answers || stage == 0) edges.inputs.emplace_back("image");
      if (stage > 0) edges.inputs.push_back(train::hidden_edge(stage));
      if (stage + 1 == num_stages) edges.outputs = {"loss", "metrics"};
      if (stage + 1 == num_stages && answers) edges.outputs = {"scores"};
      result.push_back(std::move(edges));
    }
    return result;
  }

  std::unique_ptr<train::StageModel> make_stage(const train::StageRequest& request) const override {
    const train::RunConfig& config = request.config;
    auto model = model::make_image_transformer(vit(), config.train.seed, config.dtype(),
                                               request.axes, request.part);
    model->set_recompute(config.recompute_plan());
    return std::make_unique<VitStage>(std::move(model), goal_of(problem_, config),
                                      problem_.is_answering, request);
  }

 private:
  const model::VitConfig& vit() const { return problem_.config.vit; }

  const ImageProblem& problem_;
};

}  // namespace

std::unique_ptr<train::TaskModel> make_vit_model(const ImageProblem& problem) {
  return std::make_unique<VitModel>(problem);
}

void check_vit_images(const ImageProblem& problem) {
  TRIREME_CHECK(problem.shape.height == problem.shape.width, "the images are ",
                problem.shape.height, " x ", problem.shape.width,
                " pixels, and a vision transformer takes squares; set data.image_size");
  model::validate(problem.config.vit);
}

std::unique_ptr<ImageClassifier> make_vit_classifier(const ImageProblem& problem,
                                                     const train::RunConfig& config) {
  return std::make_unique<VitClassifier>(
      model::make_image_transformer(problem.config.vit, config.train.seed, config.dtype()),
      goal_of(problem, config), config.dtype());
}

}  // namespace trireme::tasks
