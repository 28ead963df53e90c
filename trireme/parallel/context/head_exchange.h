// The all-to-all between tokens and heads: from some tokens of all heads on each rank to all tokens
// of some heads, and back. Not differentiable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/layout.h"
#include "trireme/parallel/context/context_attention.h"
#include "trireme/parallel/context/sequence_split.h"

namespace trireme::parallel {

// The heads that a rank computes.
struct Share {
  mesh::Range queries;
  // A rank's query heads may read the same kv head as the next rank's. Both get it, and its
  // gradients are summed.
  mesh::Range kv;
};

// Assigns heads and tokens to the ranks that compute them.
struct Route : torch::CustomClassHolder {
  Route(int64_t heads, int64_t kv_heads, const SequenceSplit& split, comm::Communicator& group,
        AllToAllOptions options);
  const Share& mine() const { return shares[group.rank()]; }
  int64_t num_kv_heads_sent() const;  // with copies, where several ranks get one

  int64_t heads;
  int64_t kv_heads;
  SequenceSplit split;
  comm::Communicator& group;
  AllToAllOptions options;
  std::vector<Share> shares;
};

// A part of q, k or v of this rank's tokens.
struct HeadPiece {
  size_t tensor;         // 0: q, 1: k, 2: v
  mesh::Range heads;     // of that tensor
  mesh::Range tokens;    // of this rank's
  at::Tensor part_BtNH;  // [B, tokens, heads, H]
};

// Both read and write each number once to pack it, once to move it and once to put it in order;
// this rank's own only to put them in order.
// Comm:       as all_to_all_attention()
// Collective: every rank of the route's group

// Shapes: q, k and v [B, t, N or K, H], or q alone -> all tokens of this rank's heads, one tensor's
//         after the other: [B, T, m, H]
at::Tensor to_heads(const Route& route, const std::vector<at::Tensor>& local_BtNH);
// Shapes: this rank's heads of q, k and v, or of q alone, each [B, T, n, H] -> pieces that cover
//         all heads of this rank's tokens, rank by rank; a kv head once for each rank that has it
std::vector<HeadPiece> to_tokens(const Route& route, const std::vector<at::Tensor>& whole_BTnH);

// Shapes: [B, t, N, H] -> a view of some tokens, or of some heads
at::Tensor tokens_of(const at::Tensor& x_BtNH, const mesh::Range& tokens);
at::Tensor heads_of(const at::Tensor& x_BtNH, const mesh::Range& heads);

}  // namespace trireme::parallel
