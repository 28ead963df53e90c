#include "trireme/model/clip/image_input.h"

#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>

#include "trireme/base/error.h"
#include "trireme/model/vit/vit_plan.h"

namespace trireme::model {
namespace {

VitConfig tower_of(const VisionConfig& vision) {
  VitConfig tower;
  tower.image_size = vision.image_size;
  tower.channels = VisionConfig::kChannels;
  tower.patch_size = vision.patch_size;
  tower.layers = vision.layers;
  tower.width = vision.width;
  tower.heads = vision.heads;
  tower.ffn_width = vision.ffn_width;
  tower.norm_epsilon = vision.norm_epsilon;
  return tower;
}

// Images are whole on every rank, and so are their features.
ModelAxes axes_of_tower(const ModelAxes& axes) {
  ModelAxes own{.tensor = axes.tensor};
  own.tensor.sequence = false;
  return own;
}

void append(std::vector<at::Tensor>& tensors, const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) tensors.push_back(parameter);
}

}  // namespace

ImageInput::ImageInput(torch::nn::Module& parent, const ModelConfig& config, const ModelAxes& axes,
                       at::ScalarType dtype)
    : batches_(tower_of(config.vision).block_config(), axes_of_tower(axes),
               parallel::SequenceOrder::kContiguous, /*seed=*/0),
      num_tokens_(config.vision.num_patches() + 1) {
  const VitConfig tower = tower_of(config.vision);
  const ModelConfig of_blocks = tower.block_config();
  const ModelAxes own = axes_of_tower(axes);
  const auto vision = parent.register_module(kVisionTower, std::make_shared<torch::nn::Module>());
  embeddings_ = vision->register_module(
      "embeddings", std::make_shared<VitEmbeddings>(tower, own, dtype, kClipEmbeddings));
  // So it is spelt in transformers.
  pre_norm_ =
      vision->register_module("pre_layrnorm", std::make_shared<LayerNorm>(of_blocks, own, dtype));
  const auto layers = register_at(*vision, "encoder.layers", std::make_shared<torch::nn::Module>());
  for (int64_t layer = 0; layer < tower.layers; ++layer) {
    const auto block = layers->register_module(
        std::to_string(layer),
        std::make_shared<VitBlock>(of_blocks, own, dtype, layer, kClipBlock));
    if (layer < config.vision.used_layers()) {
      blocks_.push_back(block);
    } else {
      append(unused_, *block);
    }
  }
  append(unused_, *vision->register_module("post_layernorm",
                                           std::make_shared<LayerNorm>(of_blocks, own, dtype)));
  for (at::Tensor& parameter : unused_) parameter.set_requires_grad(false);
  const auto projector = parent.register_module(kProjector, std::make_shared<torch::nn::Module>());
  const auto linear = [&](int64_t in) {
    return std::make_shared<Linear>(in, config.width, /*bias=*/true, dtype);
  };
  linear_1_ = projector->register_module("linear_1", linear(tower.width));
  linear_2_ = projector->register_module("linear_2", linear(config.width));
}

// What does not run is with the projector: a unit is of some layer that does.
std::vector<parallel::Unit> ImageInput::units() const {
  std::vector<parallel::Unit> units = {{concat(kVisionTower, ".embeddings"), {}}};
  append(units.front().parameters, *embeddings_);
  append(units.front().parameters, *pre_norm_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    units.push_back({concat(kVisionTower, ".layers.", i), blocks_[i]->parameters()});
  }
  units.push_back({kProjector, unused_});
  append(units.back().parameters, *linear_1_);
  append(units.back().parameters, *linear_2_);
  return units;
}

void ImageInput::set_recompute(const RecomputePlan& plan) {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i]->set_recompute(plan, static_cast<int64_t>(i));
  }
}

at::Tensor ImageInput::features(const at::Tensor& images, const parallel::RunUnit& run,
                                std::span<const size_t> units) {
  TRIREME_ASSERT(units.size() == blocks_.size() + 2, units.size(), " units of images");
  const TokenBatch batch = batches_.make(images.size(0), num_tokens_, {.causal = false},
                                         images.device(), /*training=*/{});
  at::Tensor x = run(units.front(), images, [&](const at::Tensor& in) {
    return pre_norm_->forward(embeddings_->forward(in, batch));
  });
  for (size_t i = 0; i < blocks_.size(); ++i) {
    x = run(units[i + 1], x,
            [&, &block = *blocks_[i]](const at::Tensor& in) { return block.forward(in, batch); });
  }
  return run(units.back(), x, [this](const at::Tensor& in) { return project(in); });
}

// The class token has no place in the sequence.
at::Tensor ImageInput::project(const at::Tensor& x_nTD) const {
  const at::Tensor patches = x_nTD.slice(1, 1).flatten(0, 1);
  const at::Tensor hidden = at::gelu(at::linear(patches, linear_1_->weight, linear_1_->bias));
  return at::linear(hidden, linear_2_->weight, linear_2_->bias);
}

void add_image_input(ModelPlan& plan, const std::string& prefix) {
  const VisionConfig& vision = plan.config().vision;
  const VitConfig tower = tower_of(vision);
  const TensorCuts cuts(tower.block_config(), plan.cuts().ranks);
  const int64_t D = plan.config().width, W = vision.width, P = vision.patch_size;
  const std::string model = concat(prefix, kVisionTower, ".");
  const auto add_norm = [&](const std::string& name) {
    plan.add_whole(name + ".weight", {W});
    plan.add_whole(name + ".bias", {W});
  };
  plan.add_whole(model + "embeddings.class_embedding", {W});
  plan.add_whole(model + "embeddings.position_embedding.weight", {tower.num_tokens(), W});
  plan.add_whole(model + "embeddings.patch_embedding.weight", {W, VisionConfig::kChannels, P, P});
  add_norm(model + "pre_layrnorm");
  for (int64_t layer = 0; layer < vision.layers; ++layer) {
    const std::string block = concat(model, "encoder.layers.", layer, ".");
    add_image_block(plan, block, tower, cuts, kClipBlock);
    if (layer >= vision.used_layers()) plan.freeze(block);
  }
  add_norm(model + "post_layernorm");
  plan.freeze(model + "post_layernorm.");
  const std::string projector = concat(prefix, kProjector, ".");
  plan.add_whole(projector + "linear_1.weight", {D, W});
  plan.add_whole(projector + "linear_1.bias", {D});
  plan.add_whole(projector + "linear_2.weight", {D, D});
  plan.add_whole(projector + "linear_2.bias", {D});
}

double flops_of_image(const ModelConfig& config) {
  const VitCosts tower = vit_flops(tower_of(config.vision));
  const double of_tower =
      tower.embeddings + static_cast<double>(config.vision.used_layers()) * tower.block;
  const auto D = static_cast<double>(config.width), W = static_cast<double>(config.vision.width);
  const double of_weights = 2 * static_cast<double>(config.vision.num_patches()) * (D * W + D * D);
  return config.lora.is_on() ? of_tower / 3 + of_weights : of_tower + 3 * of_weights;
}

double kept_bytes_of_images(const ModelConfig& config, const VitForward& forward,
                            bool trains_tower) {
  const auto item = static_cast<double>(c10::elementSize(forward.dtype));
  const auto D = static_cast<double>(config.width), W = static_cast<double>(config.vision.width);
  const double patches = static_cast<double>(forward.num_images * config.vision.num_patches());
  // The inputs of both layers and of GELU, and the rows that take places in the sequences.
  const double of_projector = item * patches * (W + 3 * D);
  if (!trains_tower) return of_projector;
  VitForward whole = forward;
  whole.sequence = false;
  whole.context = 1;
  const VitCosts tower = vit_kept_bytes(tower_of(config.vision), whole);
  const auto tokens = static_cast<double>(forward.num_images * (config.vision.num_patches() + 1));
  const double of_norm = item * W * tokens;  // before the blocks, of its input
  // Quick GELU keeps a sigmoid beside its input and output.
  const RecomputePlan& again = forward.recompute;
  const double of_gelu = again.block || again.feed_forward
                             ? 0
                             : item * static_cast<double>(config.vision.ffn_width) * tokens /
                                   static_cast<double>(forward.tensor);
  return of_projector + of_norm + tower.embeddings +
         static_cast<double>(config.vision.used_layers()) * (tower.block + of_gelu);
}

void check_vision(const ModelConfig& config) {
  const VisionConfig& vision = config.vision;
  if (!vision.is_on()) return;
  TRIREME_CHECK(vision.image_size % vision.patch_size == 0, "vision.patch_size is ",
                vision.patch_size, " and vision.image_size ", vision.image_size,
                "; expected a divisor of it: change one of them");
  TRIREME_CHECK(vision.width % vision.heads == 0, "vision.heads is ", vision.heads,
                " and vision.width ", vision.width,
                "; expected a divisor of it: change one of them");
  TRIREME_CHECK(vision.used_layers() >= 1, "vision.feature_layer is ", vision.feature_layer,
                " and vision.layers ", vision.layers, ", before which no block runs; expected -",
                vision.layers, " to -1");
  TRIREME_CHECK(vision.num_patches() <= config.sequence_length, "vision.image_size is ",
                vision.image_size, " and vision.patch_size ", vision.patch_size,
                ", so that an image takes ", vision.num_patches(),
                " tokens, and model.sequence_length is ", config.sequence_length,
                "; raise it, or make the patches larger");
  TRIREME_CHECK(config.vocab_size == 0 || vision.image_token < config.vocab_size,
                "vision.image_token is ", vision.image_token, " and model.vocab_size ",
                config.vocab_size,
                "; expected a token of the vocabulary: lower it, or raise model.vocab_size");
  TRIREME_CHECK(config.dropout == 0, "model.dropout is ", config.dropout, " and vision.layers ",
                vision.layers, ", and features of images have no dropout; set it to 0");
}

}  // namespace trireme::model
