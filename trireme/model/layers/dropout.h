// Dropout: training zeroes each element with probability p and multiplies the others by
// 1 / (1 - p). It applies in three places: to the output of the embedding, and to the outputs of
// attention's output projection and of the feed-forward before they are added to the residual
// stream. Attention's probabilities are never dropped, because no kernel here keeps them.
//
// The mask of an element depends only on (train.seed, step, name of the place, sequence in the
// step's global batch, position in the whole sequence, channel). Every layout, schedule, microbatch
// and recomputation therefore has the same mask. Ranks that hold the same element each draw its
// mask, so nothing is communicated. Backward draws the mask again instead of keeping it.
// Source: Srivastava et al. 2014, JMLR 15, section 4; places: Radford et al. 2019
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include "trireme/base/random/random.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/philox.h"
#include "trireme/parallel/tensor/split_layers.h"

namespace trireme::model {

// A range of the D columns of a matrix.
struct CutColumns {
  int64_t offset = 0;
  int64_t whole = 0;  // D
};

// Returns residual + x, with elements of x dropped and the others scaled. Element d of the row with
// number n is dropped if random_bits(key, n * ceil(D / 4) + d / 4)[d % 4] < floor(p * 2^32).
// columns: those of D that x has; empty: all
// Shapes: x, residual [..., D] with S rows, residual may be undefined; rows_S [S] -> [..., D]
// Throws: InternalError when p is not in [0, 1) or the shapes do not match
at::Tensor drop(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& rows_S,
                RandomKey key, double probability, std::optional<CutColumns> columns = {});

// Dropout at one place of a model. With probability 0 and outside training it takes no time and
// changes no bit.
class Dropout {
 public:
  // Drops nothing.
  Dropout() = default;
  // place: its name, such as "blocks.3.attention". It is the same on every rank.
  Dropout(double probability, std::string place)
      : probability_(probability), place_(std::move(place)) {}

  // Whether it changes anything in a forward of this batch.
  bool drops(const TokenBatch& batch) const;
  // Shapes: x [B, T, D], or its rows as the tensor axis holds them -> the same
  at::Tensor forward(const at::Tensor& x, const TokenBatch& batch) const;
  // The same for other rows than the layers hold, with their numbers as RandomDraw has them.
  // Shapes: x [..., D], rows_S [S] int64 -> x's shape
  at::Tensor forward(const at::Tensor& x, const at::Tensor& rows_S, const TokenBatch& batch) const;
  // The same for some columns of the rows that this rank's layers hold, or of the rows of all ranks
  // of the tensor axis.
  // Shapes: x [..., columns], with as many rows as either -> the same
  at::Tensor forward(const at::Tensor& x, const CutColumns& columns, const TokenBatch& batch) const;
  // residual + x, after dropout of x. residual undefined: x alone.
  // Shapes: x, residual as forward() has them -> the same
  at::Tensor add(const at::Tensor& x, const at::Tensor& residual, const TokenBatch& batch) const;
  // Adds row_linear(x_f, layer), after dropout, to the residual stream.
  // Shapes, Comm, Collective: those of row_linear()
  at::Tensor close_branch(const at::Tensor& x_f, const parallel::LinearWeight& layer,
                          const at::Tensor& residual, const parallel::TensorAxis& axis,
                          const TokenBatch& batch) const;

 private:
  RandomKey key(const RandomDraw& draw) const;

  double probability_ = 0;
  std::string place_;
};

}  // namespace trireme::model
