// The placement and the initial values of a Vision Transformer's parameters, and its cost:
// parameters, operations, and memory that the forward pass keeps. Arithmetic on the config;
// allocates nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <c10/core/ScalarType.h>

#include "trireme/model/family/init.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/model/vit/vit_config.h"

namespace trireme::model {

// Names within a block, and the function between its feed-forward's layers. A name with dots names
// modules within modules; an empty one, none.
struct VitBlockNames {
  const char* first_norm = "layernorm_before";
  const char* attention = "attention";
  const char* query = "attention.query";
  const char* key = "attention.key";
  const char* value = "attention.value";
  const char* output = "output.dense";
  const char* second_norm = "layernorm_after";
  const char* feed_forward = "";
  const char* up = "intermediate.dense";
  const char* down = "output.dense";
  const char* gelu = "none";  // see GeluOptions
};
inline constexpr VitBlockNames kClipBlock{.first_norm = "layer_norm1",
                                          .attention = "self_attn",
                                          .query = "q_proj",
                                          .key = "k_proj",
                                          .value = "v_proj",
                                          .output = "out_proj",
                                          .second_norm = "layer_norm2",
                                          .feed_forward = "mlp",
                                          .up = "fc1",
                                          .down = "fc2",
                                          .gelu = "quick"};

// Adds the parameters of a block.
// block: begins the names, such as "vit.encoder.layer.0."
void add_image_block(ModelPlan& plan, const std::string& block, const VitConfig& config,
                     const TensorCuts& cuts, const VitBlockNames& names);

// Every parameter of the whole model, in the order in which the network registers them, under the
// names in checkpoints of Hugging Face's ViTForImageClassification. Matrices are split by heads and
// feed-forward rows; embeddings, norms and classifier are whole on every rank.
// Throws: ConfigError when the model cannot be split over `tensor_ranks` ranks, or without classes
ModelPlan make_vit_plan(const VitConfig& config, int tensor_ranks);

// Norms 1, biases 0, all other parameters normal(0, 0.02).
Initialiser vit_initialiser(std::string_view name);

// The cost of each part of a model, to divide its layers among pipeline stages. The embeddings are
// with the first block, norm and classifier with the last.
struct VitCosts {
  double embeddings = 0;
  double block = 0;  // of one of L
  double head = 0;   // norm and classifier
};

// Number of parameters of the whole model, and of its parts. Exact below 2^53.
int64_t num_parameters(const VitConfig& config);
VitCosts vit_parameters(const VitConfig& config);

// Floating-point operations of the matrix products in forward and backward of one image. Pixels
// need no gradient.
VitCosts vit_flops(const VitConfig& config);
double flops_per_image(const VitConfig& config);

// The conditions under which a rank runs a microbatch.
struct VitForward {
  int64_t num_images = 1;  // of the microbatch
  c10::ScalarType dtype = c10::ScalarType::Float;
  RecomputePlan recompute{};
  int64_t tensor = 1;     // ranks on the tensor axis
  bool sequence = false;  // whether they share the rows between the layers
  int64_t context = 1;    // ranks on the context axis
};

// Bytes of the tensors that the forward keeps for its backward on a rank with an even share of the
// tokens. Without small ones: means and scales of norms, sums of softmax, numbers of rows.
VitCosts vit_kept_bytes(const VitConfig& config, const VitForward& forward);

}  // namespace trireme::model
