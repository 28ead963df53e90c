// Runs of an optimizer over parameters of many shapes: against reference.py, and cut in pieces.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/data/shard.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

class Optimizer;

// Replicated over a shard axis of one rank: one element, vectors, wide and tall matrices, an
// embedding, three dimensions, no element.
std::vector<parallel::Shard> make_shards(at::ScalarType dtype);

// What a gradient does over the steps. kOneSign: every element keeps its sign, with a magnitude
// from 0.5 to 1.5; averages of it cancel nothing, so that rounding stays relative.
enum class Gradients { kAnySign, kOneSign };

// fp32 numbers in `dtype`, different for each step (from 1) and parameter.
at::Tensor gradient_at(int step, const parallel::Shard& shard, at::ScalarType dtype,
                       Gradients gradients = Gradients::kAnySign);

// Steps number `first` to `last`, each with gradients of its own and a smaller rate.
void run_steps(Optimizer& optimizer, std::vector<parallel::Shard>& shards, int first, int last);

// How far a step in fp32 may be off: `roundings` of 2^-24 of its size, which is at most
// learning_rate * `size`.
struct StepError {
  double size = 1;
  double roundings = 0;
};

// Six steps. fp64 within 1e-10, relative; fp32, with gradients of one sign, within
// what `step` and the rounding of the weights themselves come to.
void compare_with_reference(OptimizerConfig config, const StepError& step);

// One vector of weights whole and in four pieces cut at multiples of 64, on one to three threads.
void expect_same_bits_in_pieces(const OptimizerConfig& config);

}  // namespace trireme::train
