// What a Vision Transformer costs: parameters, operations, and the memory that a forward keeps.
// Arithmetic on the config; allocates nothing.
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "trireme/model/layers/recompute.h"
#include "trireme/model/vit/vit_config.h"

namespace trireme::model {

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

// How a rank runs a microbatch.
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
