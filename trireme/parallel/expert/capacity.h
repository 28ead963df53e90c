// How many tokens of a sequence an expert takes. Those beyond it pass the block by.
// Sources: Lepikhin et al. 2020, arXiv:2006.16668, section 3.2 (the capacity of a group of tokens:
//          here a sequence, so that no layout changes what is dropped); Fedus et al. 2021,
//          arXiv:2101.03961, section 2.2 (the factor)
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

enum class DropBy { kPosition, kProbability };

// The tokens of one sequence that an expert takes: ceil(factor * T * k / E).
int64_t expert_capacity(double factor, int64_t T, int64_t experts_per_token, int64_t num_experts);

// The assignments that their experts have room for. kPosition keeps an expert's first tokens,
// kProbability those with the largest weights, and of equal ones the first.
// Shapes: experts_BTK [B, T, k] int64, whole sequences, a token's experts being different ones;
//         weights_BTK [B, T, k], read for kProbability only -> experts_BTK, -1 where dropped
at::Tensor drop_over_capacity(const at::Tensor& experts_BTK, const at::Tensor& weights_BTK,
                              int64_t num_experts, int64_t capacity, DropBy by);

}  // namespace trireme::parallel
