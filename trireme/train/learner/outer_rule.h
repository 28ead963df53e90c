// What section [outer] means for the library: how common weights change, and how differences are
// sent; and parameter servers that do both.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/learner/outer_optimizer.h"
#include "trireme/parallel/learner/wire_form.h"
#include "trireme/parallel/server/state/key_ranges.h"
#include "trireme/train/config/outer_config.h"

namespace trireme::train {

parallel::OuterOptimizerOptions outer_options(const OuterConfig& outer);
parallel::WireForm wire_form(const OuterConfig& outer);
// Whether a message loses something, which is added to the next one.
bool loses(const OuterConfig& outer);

// A parameter's common weights and outer momentum, flat.
struct CommonWeights {
  at::Tensor values;
  at::Tensor momentum;  // undefined without it
};

// Pieces that change by the outer optimizer, whose gradient is the mean of differences in the
// config's wire form. They share no memory with `weights`.
// weights: of each parameter, in the order of the pieces' parameters
parallel::MakePiece make_outer_pieces(const OuterConfig& outer, std::vector<CommonWeights> weights);
// The payload of elements [first, first + count) of a difference, for such a piece.
// residual: of the whole difference, updated in place; undefined if messages lose nothing
// Shapes:   difference, residual [n]
at::Tensor outer_payload(const OuterConfig& outer, const at::Tensor& difference,
                         const at::Tensor& residual, int64_t first, int64_t count);

}  // namespace trireme::train
