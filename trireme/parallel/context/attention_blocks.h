// Chooses the parts of the score matrix that a rank computes for one piece of keys: causal by token
// position or not, within documents, and within a window. Only the blocks at the window's far edge
// contain masked scores.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"
#include "trireme/parallel/context/sequence_split.h"

namespace trireme::parallel {

// The keys of a block that each of its queries reads: all. With is_causal, queries and keys are the
// same tokens, and a query reads the keys up to itself. With an edge, query r of the block reads
// its keys from r + edge on, at least one.
struct BlockReach {
  bool is_causal = false;
  std::optional<int64_t> edge{};  // not with is_causal

  bool is_whole() const { return !is_causal && !edge; }
  bool operator==(const BlockReach&) const = default;
};

// A rectangle of scores. Queries and keys are numbered among the tokens on their own rank. None of
// the three ranges is empty.
struct AttentionBlock {
  mesh::Range sequences;  // of the B sequences
  mesh::Range queries;    // of the t tokens of the query's rank
  mesh::Range keys;       // of the s tokens of the keys' rank
  BlockReach reach{};

  bool operator==(const AttentionBlock&) const = default;
};

class AttentionMask {
 public:
  // Causal blocks of more than `causal_tokens` are halved, for kernels that also compute the masked
  // half of a block.
  // With a window, blocks are no longer than it, so that each is at one of its edges at most.
  // With documents, the cost grows with the number of runs of equal numbers, so it is low for long
  // documents, as in packed sequences.
  // Throws: ConfigError when the documents are not [batch, split.length()] of int64, or there is a
  //         window without causality
  AttentionMask(const SequenceSplit& split, int64_t batch, const AttentionReach& reach = {},
                int64_t causal_tokens = kCausalTokens);
  // Leaves little waste in libtorch's kernels.
  static constexpr int64_t kCausalTokens = 256;

  // The blocks that `query_rank` computes with the keys of `key_rank`, in a fixed order. A query's
  // blocks are in the order of their keys.
  std::vector<AttentionBlock> blocks(int query_rank, int key_rank) const;

 private:
  struct Run {
    mesh::Range tokens;
    int64_t document;
  };
  struct Segment;  // the tokens of a run on one rank
  // Sequences that are cut into documents at the same places.
  struct Group {
    mesh::Range sequences;
    std::vector<Run> runs;
  };
  static std::vector<Segment> segments(const SequenceSplit& split, int rank, const Group& group);
  // Joins adjacent segments of one document.
  static void join(std::vector<Segment>& segments);

  // Both are runs of tokens, queries.offset - keys.offset + distance positions apart.
  void append_window(std::vector<AttentionBlock>& blocks, const mesh::Range& sequences,
                     mesh::Range queries, mesh::Range keys, int64_t distance) const;

  SequenceSplit split_;
  bool is_causal_;
  int64_t window_;  // 0: there is none
  int64_t causal_tokens_;
  std::vector<Group> groups_;
};

}  // namespace trireme::parallel
