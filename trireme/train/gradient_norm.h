// The global gradient norm and clipping by it. Every block of a fixed size is summed in order, then
// the blocks in order: the norm's bits depend on neither threads nor buckets.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme::train {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Sum of squares in double. tensor: any shape, fp32 or fp64.
double sum_of_squares(const at::Tensor& tensor);

// Euclidean norm over all gradients of `parameters`, which hold no partial sums and are not
// sharded.
double gradient_norm(const NamedTensors& parameters);

// Scales every gradient by max_norm / norm when norm > max_norm; max_norm 0 never scales.
// Source: Pascanu et al. 2013, arXiv:1211.5063
void clip_gradients(const NamedTensors& parameters, double norm, double max_norm);

// The first parameter whose gradient has a NaN or an infinity; empty when none has.
std::string first_nonfinite_gradient(const NamedTensors& parameters);

}  // namespace trireme::train
