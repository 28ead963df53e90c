// The global gradient norm, and clipping by it. Each parameter is summed in double grain by grain,
// and its grains in order. The norm's bits therefore do not depend on threads, buckets, ZeRO stage
// or ranks. A device sums in at least fp32, and whole gradients in an order of its own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/shard.h"

namespace trireme::train::inline internal {

// The sums of squares of the grains (see parallel::Grains) in this rank's part of a parameter.
// tensor: has the shape of the layout's box, and any floating dtype.
std::vector<double> grain_squares(const at::Tensor& tensor, const mesh::Layout& layout);

// Parameters that are split over the same groups.
struct NormPart {
  std::span<const parallel::Shard> shards;
  comm::Communicator& shard;            // the ranks of the shards' layouts
  comm::Communicator* outer = nullptr;  // those of the layouts around them; null: none
};

// The sum of squares of each gradient of a part over the ranks that share it; 0 for frozen ones. In
// the order of the shards. The same on every rank.
// Comm:       if the shards are not whole, 8 bytes per grain (at least 1024 elements) of the other
//             ranks' gradients; 8 bytes per parameter from every rank of `outer`
// Collective: every rank of the groups
std::vector<double> gradient_squares(const NormPart& part);

// The same of several parts, in the order of `parameters`, which names all of the model.
// pipeline: ranks with other parameters; null: every rank has all.
// Comm:       that of the parts, and the sum of 8 bytes per parameter over `pipeline`
// Collective: every rank of the groups
std::vector<double> gradient_squares(std::span<const NormPart> parts, comm::Communicator* pipeline,
                                     std::span<const std::string> parameters);

// The Euclidean norm over all parameters.
double gradient_norm(std::span<const double> squares);

// The factor for gradients that reduces a norm above max_norm to max_norm. max_norm 0 never clips.
// Source: Pascanu et al. 2013, arXiv:1211.5063
double clip_factor(double norm, double max_norm);

// The first of `parameters` whose gradient has a NaN or an infinity; "" when there is none.
std::string first_nonfinite_gradient(std::span<const std::string> parameters,
                                     std::span<const double> squares);

}  // namespace trireme::train::inline internal
