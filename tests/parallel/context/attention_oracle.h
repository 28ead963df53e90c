// The truth that attention over a split sequence is held against: one rank, whole sequences, all
// scores at once in fp64.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/context/sequence_split.h"

namespace trireme::parallel {

struct AttentionCase {
  int ranks = 1;
  int64_t B = 1;
  int64_t T = 8;
  int64_t N = 4;
  int64_t K = 4;
  int64_t H = 8;
  SequenceOrder order = SequenceOrder::kZigZag;
  bool has_documents = false;
  uint64_t seed = 1;
  bool causal = true;
  int64_t window = 0;
  ScoreForm scores{};
  bool has_sinks = false;
};
std::ostream& operator<<(std::ostream& out, const AttentionCase& c);
std::string text_of(const AttentionCase& c);

// Whole tensors; also what the result of a run is put together to.
struct AttentionData {
  at::Tensor q_BTD, k_BTG, v_BTG;  // or their gradients
  at::Tensor out_BTD;              // or the factors of the loss, which is sum(out * factors)
  AttentionReach reach;            // with sinks, a leaf of all ranks, or their gradient
};
AttentionData make_data(const AttentionCase& c, at::ScalarType dtype);

// Outputs and gradients in fp64, and what rounding can do to them: the same expressions taken over
// absolute values, whose largest elements times (rounding unit x depth) bound the error. A soft cap
// only shrinks both.
struct Expected {
  AttentionData result;
  AttentionData absolute;
  double largest_score = 0;  // of |q| |k| and the scale
};
Expected oracle(const AttentionCase& c, const AttentionData& data);

// What a rank runs, on leaf tensors.
using Attend = std::function<at::Tensor(const at::Tensor& q_BtD, const at::Tensor& k_BtG,
                                        const at::Tensor& v_BtG, const SequenceSplit& split,
                                        comm::Communicator& group)>;
// Forward and backward on c.ranks threads; the parts put together.
AttentionData run_split(const AttentionCase& c, const AttentionData& data, const Attend& attend);

// Within 1e-10 (fp64) or the derived bound (fp32, bf16) of the oracle.
void expect_close(const AttentionCase& c, const AttentionData& actual, const Expected& expected);
// Calls expect() with cases in which every token reads every token, some with fewer tokens than
// ranks. Stops at a failure.
void for_each_full_case(int ranks, const std::function<void(const AttentionCase&)>& expect);

void expect_same_bits(const AttentionData& actual, const AttentionData& expected,
                      const std::string& what);

}  // namespace trireme::parallel
