#include "trireme/tasks/diffusion/dit_model.h"

#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/model/dit/diffusion_transformer.h"
#include "trireme/model/dit/dit_plan.h"
#include "trireme/model/family/init.h"
#include "trireme/tasks/vision/part_costs.h"
#include "trireme/train/config/config.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::tasks {
namespace {

// The stage with the embeddings adds noise to the batch's images; that with the head compares the
// noise that the model finds with the one added.
// Source: Ho et al. 2020, arXiv:2006.11239, equation 14
class DitStage : public train::StageModel {
 public:
  DitStage(std::unique_ptr<model::DiffusionTransformer> model, const NoiseConfig& noise,
           const train::StageRequest& request)
      : model_(std::move(model)),
        schedule_(noise.options()),
        seed_(request.config.train.seed),
        part_(request.part),
        dtype_(request.config.dtype() == at::kDouble ? at::kDouble : at::kFloat),
        hidden_(train::hidden_edge(request.stage)) {}

  torch::nn::Module& module() override { return model_->module(); }
  std::vector<parallel::Unit> units() const override { return model_->units(); }
  void run_units_with(parallel::RunUnit run) override { model_->run_units_with(std::move(run)); }

  void initialise(std::span<const parallel::Shard> shards) override {
    model::initialise(shards, seed_, model::dit_initialiser);
  }

  std::vector<at::Tensor> forward(const train::StageInput& in) override {
    const at::Tensor timesteps_B = in["timestep"];
    model::DiffusionPartInput input{
        .num_images = timesteps_B.size(0), .hidden = in[hidden_], .training = in.training};
    const at::Tensor noise = part_.embeds || part_.has_head ? in["noise"].to(dtype_) : at::Tensor();
    if (part_.embeds) {
      const at::Tensor pixels = in["image"].to(dtype_).div_(127.5).sub_(1);  // from -1 to 1
      input.images = schedule_.add_noise(pixels, noise, timesteps_B);
      input.timesteps = timesteps_B;
      input.classes = in["label"];
    }
    const at::Tensor output = model_->forward_part(input);
    if (!part_.has_head) return {output};
    const model::DitConfig& config = model_->config();
    const at::Tensor squares = (output.to(dtype_) - model_->own_patches(noise)).square().sum();
    const int64_t values = config.channels * config.image_size * config.image_size;
    return {squares / static_cast<double>(values)};
  }

  int64_t num_terms(const dataset::Batch& batch) const override {
    return model_->num_terms(batch.size());
  }

 private:
  std::unique_ptr<model::DiffusionTransformer> model_;
  model::NoiseSchedule schedule_;
  uint64_t seed_;
  model::ModelPart part_;
  at::ScalarType dtype_;  // of noise and loss
  std::string hidden_;
};

class DitModel : public train::TaskModel {
 public:
  explicit DitModel(const DiffusionConfig& config) : config_(config) {}

  train::ModelTraits traits() const override {
    return {
        .name = concat("dit, ", dit().layers, " layers, width ", dit().width, ", ", dit().classes,
                       " classes"),
        .axes = {"tensor", "context", "pipeline"},
        .num_parameters = model::num_parameters(dit()),
        .flops_per_sample = model::flops_per_image(dit()),
        .memory_keys = {.states = {train::with_value("model.layers", dit().layers),
                                   train::with_value("model.width", dit().width)},
                        .activations = {train::with_value("data.image_size", dit().image_size),
                                        train::with_value("model.patch_size", dit().patch_size)}}};
  }
  void check(const train::RunConfig& /*config*/) const override {
    const NoiseConfig& noise = config_.noise;
    TRIREME_CHECK(noise.beta_start <= noise.beta_end, "diffusion.beta_start is ", noise.beta_start,
                  " and diffusion.beta_end ", noise.beta_end,
                  "; noise must grow: exchange them, or raise diffusion.beta_end");
    model::DitConfig config = dit();
    // Those of the data are not known yet.
    if (config.image_size == 0) config.image_size = config.patch_size;
    if (config.channels == 0) config.channels = 1;
    model::validate(config);
  }
  void check_layout(const train::RunConfig& config) const override {
    model::check_axes(dit().block_config(),
                      {.tensor = config.parallel.tensor,
                       .context = config.parallel.context,
                       .context_form = config.parallel.context_form},
                      "the number of an image's patches");
  }
  std::vector<model::ParameterPlan> parameters(model::AxisSizes sizes) const override {
    return model::make_dit_plan(dit(), sizes.tensor).parameters();
  }
  std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config) const override {
    const model::DitCosts parameters = model::dit_parameters(dit());
    const double split = model::split_parameters(dit());
    const double bytes = train::state_bytes_per_parameter(config, dit().width);
    const auto tensor = static_cast<double>(config.parallel.tensor);
    const model::DitCosts states{.embeddings = parameters.embeddings * bytes,
                                 .block = (parameters.block - split + split / tensor) * bytes,
                                 .head = parameters.head * bytes};
    return block_costs(config, dit().layers, model::dit_flops(dit()), states,
                       [&](const model::RecomputePlan& plan) {
                         return model::dit_kept_bytes(
                             dit(), {.num_images = config.largest_micro_batch(),
                                     .dtype = config.dtype(),
                                     .recompute = plan,
                                     .tensor = config.parallel.tensor,
                                     .sequence = config.parallel.sequence_parallel,
                                     .context = config.parallel.context});
                       });
  }

  // Timesteps go to every stage, for their number.
  std::vector<train::StageEdges> edges(int num_stages) const override {
    std::vector<train::StageEdges> result;
    for (int stage = 0; stage < num_stages; ++stage) {
      const bool is_first = stage == 0, is_last = stage + 1 == num_stages;
      train::StageEdges edges{
          .inputs = {"timestep"},
          .outputs = {is_last ? std::string("loss") : train::hidden_edge(stage + 1)}};
      if (is_first) edges.inputs.insert(edges.inputs.end(), {"image", "label"});
      if (!is_first) edges.inputs.push_back(train::hidden_edge(stage));
      if (is_first || is_last) edges.inputs.emplace_back("noise");
      result.push_back(std::move(edges));
    }
    return result;
  }

  std::unique_ptr<train::StageModel> make_stage(const train::StageRequest& request) const override {
    const train::RunConfig& config = request.config;
    auto model = model::make_diffusion_transformer(dit(), config.train.seed, config.dtype(),
                                                   request.axes, request.part);
    model->set_recompute(config.recompute_plan());
    return std::make_unique<DitStage>(std::move(model), config_.noise, request);
  }

 private:
  const model::DitConfig& dit() const { return config_.dit; }

  const DiffusionConfig& config_;
};

}  // namespace

std::unique_ptr<train::TaskModel> make_dit_model(const DiffusionConfig& config) {
  return std::make_unique<DitModel>(config);
}

}  // namespace trireme::tasks
