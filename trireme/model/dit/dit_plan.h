// The placement and the initial values of a diffusion transformer's parameters, and its cost:
// parameters, operations, and memory that the forward pass keeps. Arithmetic on the config;
// allocates nothing.
#pragma once

#include <cstdint>
#include <string_view>

#include <c10/core/ScalarType.h>

#include "trireme/model/dit/dit_config.h"
#include "trireme/model/family/init.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/recompute.h"

namespace trireme::model {

// Every parameter of the whole model, in the order in which the network registers them. Names are
// those of diffusers' DiTTransformer2DModel, which has a copy of "emb" in each block's "norm1".
// Attention and feed-forward are split by heads and feed-forward rows; what embeds and modulates is
// whole on every rank.
// Throws: ConfigError when the model cannot be split over `tensor_ranks` ranks, or without classes
ModelPlan make_dit_plan(const DitConfig& config, int tensor_ranks);

// Biases 0, the products that modulate and the last one 0, all other parameters normal(0, 0.02). So
// each block begins as the identity, and the noise as 0.
// Source: Peebles and Xie 2022, arXiv:2212.09748, section 3.2
Initialiser dit_initialiser(std::string_view name);

// The cost of each part of a model, to divide its layers among pipeline stages. The embeddings are
// with the first block, the last norm and product with the last.
struct DitCosts {
  double embeddings = 0;
  double block = 0;  // of one of L
  double head = 0;
};

// Number of parameters of the whole model, and of its parts. Exact below 2^53.
int64_t num_parameters(const DitConfig& config);
DitCosts dit_parameters(const DitConfig& config);
// Those of a block that the tensor axis splits.
double split_parameters(const DitConfig& config);

// Floating-point operations of the matrix products in forward and backward of one image. Pixels and
// waves of timesteps need no gradient.
DitCosts dit_flops(const DitConfig& config);
double flops_per_image(const DitConfig& config);

// The conditions under which a rank runs a microbatch.
struct DitForward {
  int64_t num_images = 1;  // of the microbatch
  c10::ScalarType dtype = c10::ScalarType::Float;
  RecomputePlan recompute{};
  int64_t tensor = 1;     // ranks on the tensor axis
  bool sequence = false;  // whether they share the rows between the layers
  int64_t context = 1;    // ranks on the context axis
};

// Bytes of the tensors that the forward keeps for its backward on a rank with an even share of the
// tokens. Without small ones: means and scales of norms, sums of softmax, numbers of rows.
DitCosts dit_kept_bytes(const DitConfig& config, const DitForward& forward);

}  // namespace trireme::model
