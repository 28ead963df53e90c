// Dropout: in training, elements are zeroed by chance with probability p and the others multiplied
// by 1 / (1 - p). It is at three places: what the embedding gives, and what attention's output
// projection and the feed-forward give before they are added to the residual stream. Never on
// attention's probabilities, which no kernel here keeps.
//
// Whether an element is dropped is a function of (train.seed, step, name of the place, sequence in
// the step's global batch, position in the whole sequence, channel) and of nothing else: every
// layout, schedule, microbatch and recomputation has the same mask. Ranks that hold an element
// twice draw it twice; nothing is communicated, and the mask is drawn again in backward instead of
// kept.
// Source: Srivastava et al. 2014, JMLR 15, section 4; places: Radford et al. 2019
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include "trireme/base/random/random.h"
#include "trireme/model/family/plan.h"
#include "trireme/parallel/tensor/column_linear.h"

namespace trireme::model {

// What the masks of one forward are drawn from.
struct DropoutDraw {
  uint64_t seed = 0;
  int64_t step = 0;
  // [S] int64, on the CPU: of each row that this rank holds between the layers, its number
  // in the step's global batch, sequence * sequence_length + position.
  at::Tensor rows_S;
};

// residual + x, with elements of x dropped. Element d of the row with number n is dropped if
// random_bits(key, n * ceil(D / 4) + d / 4)[d % 4] < p * 2^32.
// Shapes: x, residual [..., D], S rows; rows_S [S]; residual undefined: none -> [..., D]
at::Tensor drop(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& rows_S,
                RandomKey key, double probability);

// One place of a model. With probability 0, or in a batch that is not of training, it is not there:
// no time, and the bits of a model without.
class Dropout {
 public:
  // Drops nothing.
  Dropout() = default;
  // place: its name, such as "blocks.3.attention", the same on every rank.
  Dropout(double probability, std::string place)
      : probability_(probability), place_(std::move(place)) {}

  // Shapes: x [B, T, D], or its rows as the tensor axis holds them -> the same
  at::Tensor forward(const at::Tensor& x, const TokenBatch& batch) const;
  // Adds what is left of row_linear(x_f) to the residual stream; see there.
  at::Tensor close_branch(const at::Tensor& x_f, const parallel::LinearWeight& layer,
                          const at::Tensor& residual, const parallel::TensorAxis& axis,
                          const TokenBatch& batch) const;

 private:
  bool drops(const TokenBatch& batch) const;
  RandomKey key(const DropoutDraw& draw) const;

  double probability_ = 0;
  std::string place_;
};

}  // namespace trireme::model
