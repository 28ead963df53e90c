// Rotary position embedding: rotates each pair (i, i + R/2) of a head by position * base^(-2i/R),
// or by what a scaling makes of it (rope_config.h). R is the head's width or its first part.
// Source: Su et al. 2021, arXiv:2104.09864, section 3.4.2; pairs as in Hugging Face's weights
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "trireme/model/family/plan.h"
#include "trireme/model/family/rope_config.h"

namespace trireme::model {

// Cosines and sines of positions 0 to T-1. Computed in fp64, kept in fp32 or fp64.
struct RotaryTable {
  // width: R
  RotaryTable(int64_t sequence_length, int64_t width, double base, at::ScalarType dtype,
              const RopeConfig& scaling = {});
  void move_to(at::Device device);

  at::Tensor cos_TH;  // [T, R/2]
  at::Tensor sin_TH;  // [T, R/2]
};

// The angles of all layers of a model, which differ between those with a window and the others if
// model.rope_local_base is set.
class RotaryAngles {
 public:
  RotaryAngles(const ModelConfig& config, at::ScalarType dtype);
  // Adds those of the batch's positions. The tables move to its device.
  void complete(TokenBatch& batch);

 private:
  RotaryTable table_;
  std::optional<RotaryTable> local_;
};

// Returns x rotated. On the CPU, an x of the table's dtype or in bf16 is rotated in place, so x
// must be an intermediate result that nobody else reads. Position t reads row t of the table, so a
// shard of the sequence passes only its own rows.
// head_width: H; 0 = R, the width of the table
// Shapes: x_BTD [B, T, N * H] contiguous; cos_TH, sin_TH [>= T, R/2] -> [B, T, N * H]
at::Tensor apply_rotary(const at::Tensor& x_BTD, const at::Tensor& cos_TH, const at::Tensor& sin_TH,
                        int64_t head_width = 0);

}  // namespace trireme::model
