// How the context axis shares out a sequence: the form of its attention, and which tokens each rank
// holds.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
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

// What becomes of q k^T before its softmax.
// Source: the cap: Bello et al. 2016, arXiv:1611.09940, section 4.2; in Gemma 2: Riviere et al.
//         2024, arXiv:2408.00118, section 2
struct ScoreForm {
  double scale = 0;    // its factor; 0: 1 / sqrt(H)
  double softcap = 0;  // c: a scaled score s becomes c tanh(s / c); 0: it stays
  // [N, t, s]: added to the scores of these queries and keys, after that. Undefined: nothing.
  at::Tensor bias_Nts{};

  double scale_of(int64_t head_width) const {
    return scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(head_width));
  }
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

// The tokens of its sequence that a token attends to, and how.
struct AttentionReach {
  bool causal = true;  // itself and earlier tokens; false: later tokens too
  // Restricts these to tokens with the same number. [B, T] int64, for the whole sequences, the same
  // on every rank. Undefined: the sequence is one document.
  at::Tensor documents_BT{};
  // Restricts these to the last so many, itself included; 0: all. Only causal.
  int64_t window = 0;
  ScoreForm scores{};
  // [N]: for each query head a learned logit, an attention sink, that its softmax's divisor has
  // beside those of the keys. Its gradient is that of this rank's queries. Undefined: none.
  // Source: Xiao et al. 2023, arXiv:2309.17453, section 3.3 (a sink for all keys)
  at::Tensor sinks_N{};
  // [N, 2 M - 1]: what is added to each query head's scores, after scale and cap, by the distance
  // from query to key: element M - 1 + d to the score of the key d tokens behind the query. M is at
  // least the length of the sequences, of which each rank holds one range. Its gradient is that of
  // this rank's queries. Undefined: nothing.
  // Source: Raffel et al. 2020, arXiv:1910.10683, section 2.1
  at::Tensor distance_bias_NR{};
  // The split of the sequences that have the keys, if these are not the queries' own: attention
  // across, from a decoder to its encoder. Every query reads all keys of its sequence: not causal,
  // without documents, window or distances.
  std::optional<SequenceSplit> keys{};
};

}  // namespace trireme::parallel
