// Decides which tokens of a sequence each rank of the context axis holds. Pure arithmetic; never
// communicates.
// Source: zig-zag, which gives every rank the same work in causal attention: Brandon et al. 2023,
//         arXiv:2311.09431, section 3
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"

namespace trireme::parallel {

enum class SequenceOrder {
  kContiguous,  // p chunks, rank r holds chunk r
  kZigZag,      // 2p chunks, rank r holds chunks r and 2p - 1 - r
};

// Chunks are as even as possible, longer ones first. With fewer tokens than chunks some chunks are
// empty, and so may be a rank.
class SequenceSplit {
 public:
  // Throws: ConfigError when the length is negative or there are no ranks
  SequenceSplit(int64_t length, int num_ranks, SequenceOrder order = SequenceOrder::kZigZag);

  int64_t length() const { return length_; }
  int num_ranks() const { return static_cast<int>(ranges_.size()); }

  // The tokens of `rank`, in the order in which it holds them. The ranges are ascending, disjoint
  // and not empty.
  const std::vector<mesh::Range>& ranges(int rank) const { return ranges_[rank]; }
  int64_t num_tokens(int rank) const;  // t
  // The indices for rotary tables and position embeddings.
  // Shapes: -> [t] int64
  at::Tensor positions(int rank) const;

  // Cuts the tokens of `rank` from a whole sequence; differentiable. A view if the rank has one
  // range.
  // Shapes: whole [..., T, ...] with T at `dim` -> [..., t, ...]
  // Throws: ConfigError when dim is not T long
  at::Tensor local(const at::Tensor& whole, int64_t dim, int rank) const;
  // Assembles the whole sequence from the parts of all ranks, which the caller has gathered. The
  // inverse of local(); differentiable.
  // Shapes: parts[r] [..., t_r, ...] -> [..., T, ...]
  // Throws: ConfigError when there is not one part of the right length per rank
  at::Tensor assemble(const std::vector<at::Tensor>& parts, int64_t dim) const;

 private:
  int64_t length_;
  std::vector<std::vector<mesh::Range>> ranges_;  // by rank
};

}  // namespace trireme::parallel
