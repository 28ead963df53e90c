// The part of AttentionReach::distance_bias_NR that a block of scores reads. Never communicates.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

class BlockBias {
 public:
  // A block of t queries and s keys, each in the order of its sequence. distance: from the first
  // query to the first key. num_distances: R, odd
  BlockBias(int64_t t, int64_t s, int64_t distance, int64_t num_distances)
      : t_(t), s_(s), first_(num_distances / 2 + distance - (t - 1)) {}

  // What is added to the block's scores.
  // Shapes: [N, R] -> [N, t, s]
  at::Tensor of(const at::Tensor& bias_NR) const;
  // The reverse for gradients: adds each score's to the sum of its distance.
  // Shapes: sum_NR [N, R], grad_Nts [N, t, s]
  void add(const at::Tensor& sum_NR, const at::Tensor& grad_Nts) const;

 private:
  int64_t num_distances() const { return s_ + t_ - 1; }

  int64_t t_;
  int64_t s_;
  int64_t first_;  // the distance from the last query to the first key, as an index
};

}  // namespace trireme::parallel
