// Which tokens of a sequence each rank of the context axis holds. Arithmetic alone: nothing here
// communicates.
// Source: zig-zag, so that causal attention is the same work on every rank: Brandon et al. 2023,
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

// Chunks are cut as evenly as it goes, longer ones first; with fewer tokens than chunks some are
// empty, and so may be a rank.
class SequenceSplit {
 public:
  // Throws: ConfigError on a negative length or without ranks
  SequenceSplit(int64_t length, int num_ranks, SequenceOrder order = SequenceOrder::kZigZag);

  int64_t length() const { return length_; }
  int num_ranks() const { return static_cast<int>(ranges_.size()); }

  // The tokens of `rank`, in the order in which it holds them: ascending, apart, none empty.
  const std::vector<mesh::Range>& ranges(int rank) const { return ranges_[rank]; }
  int64_t num_tokens(int rank) const;  // t
  // What rotary tables and position embeddings are read at.
  // Shapes: -> [t] int64
  at::Tensor positions(int rank) const;

  // The tokens of `rank` out of a whole sequence; differentiable. A view where the rank has one
  // range.
  // Shapes: whole [..., T, ...] with T at `dim` -> [..., t, ...]
  // Throws: ConfigError when dim is not T long
  at::Tensor local(const at::Tensor& whole, int64_t dim, int rank) const;
  // The whole sequence out of the parts of all ranks, which the caller has gathered; the inverse of
  // local(), differentiable.
  // Shapes: parts[r] [..., t_r, ...] -> [..., T, ...]
  // Throws: ConfigError when there is not one part of the right length per rank
  at::Tensor assemble(const std::vector<at::Tensor>& parts, int64_t dim) const;

 private:
  int64_t length_;
  std::vector<std::vector<mesh::Range>> ranges_;  // of each rank
};

}  // namespace trireme::parallel
