// Adds gradients, or differences of weights, so that what they have in common counts once.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

namespace trireme::comm {

// For two: (1 - ab / 2aa) a + (1 - ab / 2bb) b, with the dot products ab, aa and bb. Orthogonal
// ones are summed, and equal ones are averaged: any number of equal tensors give that tensor bit
// for bit. The result of more is that of a binary tree in the order given: neighbours in pairs,
// then pairs of pairs; the last one of an odd number waits for the next level. Dot products are
// taken in fp64 in a fixed order. A tensor of zeros adds nothing.
// Shapes: terms [n] each, at least one, fp32 or fp64, finite -> [n]
// Source: Maleki et al. 2020, arXiv:2006.02924 (Adasum), sections 3 and 4; apply it to each
//         parameter by itself, as they do
at::Tensor adasum(std::span<const at::Tensor> terms);

// What the sum of two needs. Those of a tensor are the sums of those of its parts.
struct PairProducts {
  double ab = 0;
  double aa = 0;
  double bb = 0;
};
PairProducts products_of(const at::Tensor& a, const at::Tensor& b);
// Shapes: a, b [n], all of them or a part -> [n]
at::Tensor add_pair(const at::Tensor& a, const at::Tensor& b, const PairProducts& products);

}  // namespace trireme::comm
