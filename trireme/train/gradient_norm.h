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

// The sum of squares of each parameter's gradient over the ranks that share it out; 0 for frozen
// ones. The same on every rank.
// Comm:       when the shards are not whole, 8 bytes a grain of the other ranks' gradients: at least
//             1024 elements
// Collective: every rank of `group`, those of the layouts' axis
std::vector<double> gradient_squares(std::span<const parallel::Shard> shards,
                                     comm::Communicator& group);

// Euclidean norm over all parameters.
double gradient_norm(std::span<const double> squares);

// What gradients are multiplied by so that a norm above max_norm becomes max_norm; max_norm 0 never
// clips.
// Source: Pascanu et al. 2013, arXiv:1211.5063
double clip_factor(double norm, double max_norm);

// The first parameter whose gradient has a NaN or an infinity; empty when none has.
std::string first_nonfinite_gradient(std::span<const parallel::Shard> shards,
                                     std::span<const double> squares);

}  // namespace trireme::train
