#include "trireme/model/vit/image_transformer.h"

#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/layers/batch_maker.h"
#include "trireme/model/vit/vit.h"
#include "trireme/model/vit/vit_plan.h"
#include "trireme/parallel/tensor/branch_rows.h"

namespace trireme::model {
namespace {

void check_images(const at::Tensor& images, int64_t num_images, const VitConfig& config) {
  const std::vector<int64_t> expected = {num_images, config.channels, config.image_size,
                                         config.image_size};
  TRIREME_CHECK(
      images.defined() && images.is_floating_point() && images.sizes() == at::IntArrayRef(expected),
      "images of shape ", images.defined() ? images.sizes() : at::IntArrayRef(), " and type ",
      images.defined() ? images.scalar_type() : at::ScalarType::Undefined, "; expected ",
      at::IntArrayRef(expected),
      " of a floating type: convert them, or set model.image_size and model.channels");
}

class VitModel : public ImageTransformer {
 public:
  VitModel(const VitConfig& config, uint64_t seed, at::ScalarType dtype, const ModelAxes& axes,
           const ModelPart& part)
      : config_(config),
        axes_(axes),
        part_(part),
        batches_(config.block_config(), axes, parallel::SequenceOrder::kContiguous, seed),
        network_(std::make_shared<Vit>(config, axes, part, dtype)) {}

  const VitConfig& config() const override { return config_; }
  torch::nn::Module& module() override { return *network_; }
  std::vector<parallel::Unit> units() const override { return network_->units(); }
  void run_units_with(parallel::RunUnit run) override { network_->run_unit = std::move(run); }
  void set_recompute(const RecomputePlan& plan) override { network_->set_recompute(plan); }

  at::Tensor forward_part(const ImagePartInput& in) override {
    if (part_.embeds) check_images(in.images, in.num_images, config_);
    const at::Tensor& input = part_.embeds ? in.images : in.hidden;
    return network_->forward(input, batches_.make(in.num_images, config_.num_tokens(),
                                                  {.causal = false}, input.device(), in.training));
  }

  at::Tensor logits(const at::Tensor& hidden, int64_t num_images) override {
    const auto context = batches_.context_of(config_.num_tokens());
    const int64_t t = context ? context->num_tokens() : config_.num_tokens();
    const at::Tensor class_rows = at::arange(num_terms(num_images), at::kLong).mul(t);
    return network_->run_unit(network_->head_unit().value(), hidden, [&](const at::Tensor& x) {
      const at::Tensor x_BD =
          parallel::pick_rows(x, class_rows.to(x.device()), num_images * t, axes_.tensor);
      const Linear& classifier = *network_->classifier;
      return at::linear(x_BD, classifier.weight, classifier.bias);
    });
  }

  // The class token is the first token, and the split is contiguous.
  int64_t num_terms(int64_t num_images) const override {
    return axes_.context == nullptr || axes_.context->rank() == 0 ? num_images : 0;
  }

 private:
  VitConfig config_;
  ModelAxes axes_;
  ModelPart part_;
  BatchMaker batches_;
  std::shared_ptr<Vit> network_;
};

}  // namespace

std::unique_ptr<ImageTransformer> make_image_transformer(const VitConfig& config, uint64_t seed,
                                                         at::ScalarType dtype,
                                                         const ModelAxes& axes, ModelPart part) {
  validate(config);
  const ModelPlan plan = make_vit_plan(config, axes.tensor.size());
  if (part.num_layers < 0) part.num_layers = config.layers - part.first_layer;
  const WithoutMemory guard(part.without_memory);
  auto model = std::make_unique<VitModel>(config, seed, dtype, axes, part);
  initialise(model->module(), plan, {.tensor = axes.tensor.rank()}, seed, vit_initialiser);
  return model;
}

}  // namespace trireme::model
