// How the context axis shares out a sequence: the form of its attention, and which tokens each rank
// holds.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/choice.h"
#include "trireme/mesh/layout.h"

namespace trireme::parallel {

// The two forms of attention over the context axis.
enum class ContextForm {
  kRing,      // ring_attention(): any number of ranks; traffic depends only on the kv heads
  kAllToAll,  // all_to_all_attention() (Ulysses): at most one rank per query head; two messages
};
inline constexpr Choice<ContextForm> kContextForms[] = {{"ring", ContextForm::kRing},
                                                        {"all-to-all", ContextForm::kAllToAll}};

// The tokens of its sequence that a token attends to.
struct AttentionReach {
  bool causal = true;  // itself and earlier tokens; false: later tokens too
  // Restricts these to tokens with the same number. [B, T] int64, for the whole sequences, the same
  // on every rank. Undefined: the sequence is one document.
  at::Tensor documents_BT{};
  // Restricts these to the last so many, itself included; 0: all. Only causal.
  int64_t window = 0;
};

// Decides which tokens of a sequence each rank of the context axis holds. Pure arithmetic; never
// communicates.
// Source: zig-zag, which gives every rank the same work in causal attention: Brandon et al. 2023,
//         arXiv:2311.09431, section 3
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
