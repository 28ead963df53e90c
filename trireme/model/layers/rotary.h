// Rotary position embedding: rotates each pair (i, i + H/2) of a head by position * base^(-2i/H).
// Source: Su et al. 2021, arXiv:2104.09864, section 3.4.2; pairs as in Hugging Face's weights
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::model {

// Cosines and sines of positions 0 to T-1. Computed in fp64, kept in fp32 or fp64.
struct RotaryTable {
  RotaryTable(int64_t sequence_length, int64_t head_width, double base, at::ScalarType dtype);
  void move_to(at::Device device);

  at::Tensor cos_TH;  // [T, H/2]
  at::Tensor sin_TH;  // [T, H/2]
};

// Returns x rotated. On the CPU, an x of the table's dtype or in bf16 is rotated in place, so x
// must be an intermediate result that nobody else reads. Position t reads row t of the table, so a
// shard of the sequence passes only its own rows.
// Shapes: x_BTD [B, T, N * H] contiguous; cos_TH, sin_TH [>= T, H/2] -> [B, T, N * H]
at::Tensor apply_rotary(const at::Tensor& x_BTD, const at::Tensor& cos_TH,
                        const at::Tensor& sin_TH);

}  // namespace trireme::model
