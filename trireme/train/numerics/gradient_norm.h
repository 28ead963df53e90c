// The global gradient norm and clipping by it. A parameter is summed grain by grain in double, the
// grains in order: the norm's bits depend on neither threads, buckets, ZeRO stage nor ranks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/shard.h"

namespace trireme::train {

// Sums of squares of each grain (see parallel::Grains) of this rank's part of a parameter.
// tensor: shape of the layout's box, any floating dtype.
std::vector<double> grain_squares(const at::Tensor& tensor, const mesh::Layout& layout);

// Who shares parameters out.
struct NormGroups {
  comm::Communicator& shard;             // the ranks of the shards' layouts
  comm::Communicator* tensor = nullptr;  // those of the layouts they lie inside; null: none
  // Those that have other parameters; null: all are here. Then `parameters` names them all.
  comm::Communicator* pipeline = nullptr;
  std::span<const std::string> parameters{};
};

// The sum of squares of each parameter's gradient over the ranks that share it out; 0 for frozen
// ones. In the order of the shards, or of `parameters`. The same on every rank.
// Comm:       when the shards are not whole, 8 bytes a grain of the other ranks' gradients: at
//             least 1024 elements; 8 bytes a parameter from every rank of `tensor`, and the sum of
//             as many over `pipeline`
// Collective: every rank of the groups
std::vector<double> gradient_squares(std::span<const parallel::Shard> shards,
                                     const NormGroups& groups);

// Euclidean norm over all parameters.
double gradient_norm(std::span<const double> squares);

// What gradients are multiplied by so that a norm above max_norm becomes max_norm; max_norm 0 never
// clips.
// Source: Pascanu et al. 2013, arXiv:1211.5063
double clip_factor(double norm, double max_norm);

// The first of `parameters` whose gradient has a NaN or an infinity; empty when none has.
std::string first_nonfinite_gradient(std::span<const std::string> parameters,
                                     std::span<const double> squares);

}  // namespace trireme::train
