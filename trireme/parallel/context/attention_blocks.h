// Which parts of the score matrix a rank computes for one piece of keys: causal by token position,
// within documents. Masked scores are in no block, so nothing is computed to be thrown away, and no
// mask is ever made.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"
#include "trireme/parallel/context/sequence_split.h"

namespace trireme::parallel {

// A rectangle of scores: every query of it reads every key of it, or with is_causal, where queries
// and keys are the same tokens, those up to itself. Queries and keys count the tokens that the
// rank of each holds; none of the three is empty.
struct AttentionBlock {
  mesh::Range sequences;  // of the B
  mesh::Range queries;    // of the t tokens of the query's rank
  mesh::Range keys;       // of the s tokens of the keys' rank
  bool is_causal = false;

  // Scores that are not masked, over all its sequences.
  int64_t num_scores() const;
  bool operator==(const AttentionBlock&) const = default;
};

class AttentionMask {
 public:
  // documents_BT [B, T] int64: tokens read only tokens of the same number; the same on every rank.
  // Undefined: each sequence is one document. Runs of one number are the unit of work, so it is
  // cheap where documents are long, as packed ones are.
  // Throws: ConfigError when the documents are not [batch, split.length()] of int64
  AttentionMask(const SequenceSplit& split, int64_t batch, const at::Tensor& documents_BT = {});

  // What `query_rank` computes with the keys of `key_rank`. In a fixed order; blocks of a query
  // stand in the order of their keys.
  std::vector<AttentionBlock> blocks(int query_rank, int key_rank) const;

 private:
  struct Run {
    mesh::Range tokens;
    int64_t document;
  };
  struct Segment;  // a run's tokens on one rank
  // Sequences with one cut into documents.
  struct Group {
    mesh::Range sequences;
    std::vector<Run> runs;
  };
  static std::vector<Segment> segments(const SequenceSplit& split, int rank, const Group& group);
  // Makes neighbours of one document one segment.
  static void join(std::vector<Segment>& segments);

  SequenceSplit split_;
  std::vector<Group> groups_;
};

}  // namespace trireme::parallel
