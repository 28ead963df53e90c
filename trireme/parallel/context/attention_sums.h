// Results of attention's blocks joined into those of a sequence: the softmax over keys that come in
// parts, and sums of gradients. Never communicates.
// Source: merge: Milakov & Gimelshein 2018, arXiv:1805.02867, section 3
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/context/attention_blocks.h"
#include "trireme/parallel/context/head_rows.h"
#include "trireme/parallel/context/local_attention.h"

namespace trireme::parallel {

// Tracks which tokens of a result hold values: in each sequence, those before a frontier. The
// result therefore need not be filled before it is written.
class Frontier {
 public:
  explicit Frontier(int64_t num_sequences) : ends_(num_sequences, 0) {}
  // Whether all of `tokens` in `sequences` lie beyond the frontier.
  bool is_before(const mesh::Range& sequences, const mesh::Range& tokens) const;
  // Moves the frontier to the end of `tokens` in `sequences`. Returns true if it was before them:
  // write them. Returns false otherwise: add to them. Calls clear(sequences, tokens) for tokens
  // that are now before the frontier but hold no value.
  template <typename Clear>
  bool move(const mesh::Range& sequences, const mesh::Range& tokens, const Clear& clear);

 private:
  std::vector<int64_t> ends_;
};

// Rows that are sums of blocks' rows, in the order of the calls, in accumulation_dtype(); rounded
// once to the dtype that is asked for. A row of one block keeps that block's dtype. The last sum of
// a row waits until then, so that low precision is read and written once.
// Memory: the rows, in the blocks' dtype or, once a row has a third block, in accumulation_dtype();
//         and one block for each row that waits
class BlockRows {
 public:
  // out_BNtH: memory for the rows, laid out [B, t, N, H]; undefined: takes a block's that is the
  // whole, or allocates it.
  explicit BlockRows(const at::Tensor& like_BNtH, const at::Tensor& out_BNtH = {});

  bool is_whole(const at::Tensor& part_BNtH) const { return part_BNtH.sizes() == shape_; }
  // The block's place in the rows, if these are in accumulation_dtype() and none of its tokens
  // has a value; undefined otherwise. store() does not copy a part that was written there.
  at::Tensor room(const mesh::Range& sequences, const mesh::Range& tokens) const;
  // Stores the block if none of its tokens has a value. Returns false otherwise: join() it.
  bool store(const mesh::Range& sequences, const mesh::Range& tokens, const at::Tensor& part_BNtH);
  // own_BNt: weights of what the rows hold so far; undefined: 1
  void join(const mesh::Range& sequences, const mesh::Range& tokens, const at::Tensor& own_BNt,
            const WeightedRows& part);
  void scale(const at::Tensor& weight_BNt);  // [B, N, t]

  // All laid out [B, t, N, H], zero where no block was. After a call with a dtype below
  // accumulation_dtype(), add no more.
  at::Tensor rows_BNtH(at::ScalarType dtype);
  // In whichever dtype they are without another rounding: the blocks' or accumulation_dtype().
  at::Tensor exact_rows_BNtH();

 private:
  struct Waiting {
    mesh::Range sequences, tokens;
    at::Tensor own_BNt;
    WeightedRows part;
  };
  void fill();
  void settle(at::ScalarType dtype);

  std::vector<int64_t> shape_;  // B, N, t, H
  at::TensorOptions options_;
  at::ScalarType sum_dtype_;
  at::Tensor rows_BNtH_;  // undefined until the first block
  Frontier stored_;
  std::vector<Waiting> waiting_;  // at most one for a row
  Frontier waits_;
};

// Softmax over keys that come in parts: out = sum_i exp(lse_i - lse) out_i, lse = log sum_i
// exp(lse_i). Summed in the order of add(), in accumulation_dtype(); a part that is the whole is
// left as it is.
class OnlineSoftmax {
 public:
  explicit OnlineSoftmax(const at::Tensor& q_BNtH);
  // Adds the block's part, and may keep its tensors.
  void add(const AttentionBlock& block, const PartialAttention& part);
  // Adds to each query a key without a value, whose score is that of its head. After all parts.
  void add_sinks(const at::Tensor& sinks_N);

  // For a query that has read no key, out is 0 and lse is -inf.
  at::Tensor out_BNtH();  // in q's dtype, laid out [B, t, N, H]; after all parts
  at::Tensor lse_BNt();

 private:
  void allocate_lse();

  std::vector<int64_t> shape_;  // B, N, t, H
  at::ScalarType dtype_;
  at::TensorOptions options_;  // of the log-sum-exp
  BlockRows out_;
  at::Tensor lse_BNt_;  // undefined until the first add()
};

// The sum of blocks' gradients, in the order of add(), in accumulation_dtype().
class BlockSum {
 public:
  // out_BNtH: as in BlockRows
  explicit BlockSum(const at::Tensor& like_BNtH, const at::Tensor& out_BNtH = {});
  // As BlockRows::room().
  at::Tensor room(const mesh::Range& sequences, const mesh::Range& tokens) const {
    return rows_.room(sequences, tokens);
  }
  // Adds `part` to `tokens` of `sequences`, and may keep the tensor.
  void add(const mesh::Range& sequences, const mesh::Range& tokens, const at::Tensor& part);
  // As the rows of BlockRows.
  at::Tensor sum_BNtH(at::ScalarType dtype) { return rows_.rows_BNtH(dtype); }
  at::Tensor exact_sum_BNtH() { return rows_.exact_rows_BNtH(); }

 private:
  BlockRows rows_;
};

}  // namespace trireme::parallel
