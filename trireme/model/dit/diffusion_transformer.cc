#include "trireme/model/dit/diffusion_transformer.h"

#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/dit/dit.h"
#include "trireme/model/dit/dit_plan.h"
#include "trireme/model/layers/batch_maker.h"
#include "trireme/model/layers/patches.h"
#include "trireme/parallel/tensor/branch_rows.h"

namespace trireme::model {
namespace {

void check_input(const DiffusionPartInput& in, const DitConfig& config) {
  const std::vector<int64_t> expected = {in.num_images, config.channels, config.image_size,
                                         config.image_size};
  const at::Tensor& images = in.images;
  TRIREME_CHECK(
      images.defined() && images.is_floating_point() && images.sizes() == at::IntArrayRef(expected),
      "noisy images of shape ", images.defined() ? images.sizes() : at::IntArrayRef(), " and type ",
      images.defined() ? images.scalar_type() : at::ScalarType::Undefined, "; expected ",
      at::IntArrayRef(expected),
      " of a floating type: convert them, or set model.image_size and model.channels");
  for (const auto& [name, numbers] :
       {std::pair("timesteps", in.timesteps), std::pair("classes", in.classes)}) {
    TRIREME_CHECK(numbers.defined() && numbers.scalar_type() == at::kLong &&
                      numbers.sizes() == at::IntArrayRef({in.num_images}),
                  "the ", name, " are not one int64 for each of ", in.num_images,
                  " images; give each image one");
  }
}

class DitModel : public DiffusionTransformer {
 public:
  DitModel(const DitConfig& config, uint64_t seed, at::ScalarType dtype, const ModelAxes& axes,
           const ModelPart& part)
      : config_(config),
        axes_(axes),
        part_(part),
        batches_(config.block_config(), axes, parallel::SequenceOrder::kContiguous, seed),
        network_(std::make_shared<Dit>(config, axes, part, dtype)) {}

  const DitConfig& config() const override { return config_; }
  torch::nn::Module& module() override { return *network_; }
  std::vector<parallel::Unit> units() const override { return network_->units(); }
  void run_units_with(parallel::RunUnit run) override { network_->run_unit = std::move(run); }
  void set_recompute(const RecomputePlan& plan) override { network_->set_recompute(plan); }

  at::Tensor forward_part(const DiffusionPartInput& in) override {
    if (part_.embeds) check_input(in, config_);
    const at::Tensor& input = part_.embeds ? in.images : in.hidden;
    const TokenBatch batch = batches_.make(in.num_images, config_.num_tokens(), {.causal = false},
                                           input.device(), in.training);
    network_->conditions = {in.timesteps, in.classes};
    const at::Tensor output = network_->forward(input, batch);
    if (!part_.has_head) return output;
    const int64_t num_rows = batch.B * batch.T;
    const at::Tensor all = at::arange(num_rows, output.options().dtype(at::kLong));
    return parallel::pick_rows(output, all, num_rows, axes_.tensor)
        .view({batch.B, batch.T, config_.patch_elements()});
  }

  at::Tensor own_patches(const at::Tensor& images) const override {
    const at::Tensor patches_BTK =
        view_patches(images, config_.patch_size)
            .permute({0, 1, 2, 4, 5, 3})
            .reshape({images.size(0), config_.num_tokens(), config_.patch_elements()});
    const auto context = batches_.context_of(config_.num_tokens());
    return context ? context->local(patches_BTK, 1) : patches_BTK;
  }

  int64_t num_terms(int64_t num_images) const override {
    return axes_.context == nullptr || axes_.context->rank() == 0 ? num_images : 0;
  }

 private:
  DitConfig config_;
  ModelAxes axes_;
  ModelPart part_;
  BatchMaker batches_;
  std::shared_ptr<Dit> network_;
};

}  // namespace

at::Tensor DiffusionTransformer::noise_in(const at::Tensor& images, const at::Tensor& timesteps,
                                          const at::Tensor& classes) {
  const int64_t P = config().patch_size, side = config().image_size / P;
  const at::Tensor patches = forward_part(
      {.num_images = images.size(0), .images = images, .timesteps = timesteps, .classes = classes});
  return patches.view({images.size(0), side, side, P, P, config().channels})
      .permute({0, 5, 1, 3, 2, 4})
      .reshape(images.sizes());
}

std::unique_ptr<DiffusionTransformer> make_diffusion_transformer(const DitConfig& config,
                                                                 uint64_t seed,
                                                                 at::ScalarType dtype,
                                                                 const ModelAxes& axes,
                                                                 ModelPart part) {
  validate(config);
  const ModelPlan plan = make_dit_plan(config, axes.tensor.size());
  if (part.num_layers < 0) part.num_layers = config.layers - part.first_layer;
  const WithoutMemory guard(part.without_memory);
  auto model = std::make_unique<DitModel>(config, seed, dtype, axes, part);
  initialise(model->module(), plan, {.tensor = axes.tensor.rank()}, seed, dit_initialiser);
  return model;
}

}  // namespace trireme::model
