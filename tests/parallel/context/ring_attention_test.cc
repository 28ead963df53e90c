#include "trireme/parallel/context/ring_attention.h"

#include <chrono>
#include <random>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/context/attention_oracle.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

constexpr SequenceOrder kRingOrders[] = {SequenceOrder::kContiguous, SequenceOrder::kZigZag};

Attend ring(const AttentionCase& c, const AttentionData& data, RingOptions options = {}) {
  return [c, reach = data.reach, options](const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const SequenceSplit& split,
                                          comm::Communicator& group) {
    return ring_attention(q, k, v, c.N, c.K, split, group, reach, options);
  };
}

void expect_oracle(const AttentionCase& c, at::ScalarType dtype) {
  const AttentionData data = make_data(c, dtype);
  expect_close(c, run_split(c, data, ring(c, data)), oracle(c, data));
}

// Waits a random time before each message.
class SlowCommunicator : public harness::CountingCommunicator {
 public:
  SlowCommunicator(comm::Communicator& inner, uint64_t seed)
      : CountingCommunicator(inner), random_(seed + inner.rank()) {}
  comm::WorkPtr run(comm::Collective call) override {
    if (call.is_message()) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 3000));
    return CountingCommunicator::run(std::move(call));
  }

 private:
  std::mt19937_64 random_;
};

class RingAttention : public testing::TestWithParam<int> {};

TEST_P(RingAttention, IsOneRanksAttentionInEveryShape) {
  constexpr int64_t kHeads[][2] = {{4, 4}, {4, 2}, {6, 2}, {4, 1}};
  uint64_t seed = 0;
  for (const SequenceOrder order : kRingOrders) {
    for (const bool has_documents : {false, true}) {
      for (const int64_t T : {1, 2, 7, 8, 33, 64}) {
        for (const auto& [N, K] : kHeads) {
          const int64_t B = ++seed % 2 == 0 ? 1 : 3;
          const AttentionCase c{GetParam(), B, T, N, K, 8, order, has_documents, seed};
          expect_oracle(c, at::kDouble);
          expect_oracle(c, at::kFloat);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Worlds, RingAttention, testing::Values(1, 2, 3, 4));

TEST_P(RingAttention, WithoutCausalityReadsEveryToken) {
  for_each_full_case(GetParam(), [](const AttentionCase& c) {
    expect_oracle(c, at::kDouble);
    expect_oracle(c, at::kFloat);
  });
}

TEST(WholeAttention, WithoutCausalityReadsEveryToken) {
  for_each_full_case(1, [](const AttentionCase& c) {
    const AttentionData data = make_data(c, at::kDouble);
    const Attend whole = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const SequenceSplit&, comm::Communicator&) {
      return whole_attention(q, k, v, c.N, c.K, data.reach);
    };
    expect_close(c, run_split(c, data, whole), oracle(c, data));
  });
}

TEST(RingAttention, LongSequencesInManyRanks) {
  for (int ranks = 5; ranks <= 8; ++ranks) {
    for (const bool has_documents : {false, true})
      expect_oracle({ranks, 1, 37, 4, 2, 8, SequenceOrder::kZigZag, has_documents}, at::kDouble);
  }
  for (const SequenceOrder order : kRingOrders)
    expect_oracle({2, 1, 700, 2, 1, 16, order, true}, at::kDouble);
}

TEST(RingAttention, AWindowHidesWhatLiesFurtherBack) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const bool has_documents : {false, true}) {
      for (const int64_t window : {1, 3, 20, 64, 65}) {
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
          expect_oracle(
              {ranks, 2, 65, 4, 2, 16, SequenceOrder::kZigZag, has_documents, 7, true, window},
              dtype);
        }
      }
    }
  }
  // More than a block of a kernel.
  expect_oracle({2, 1, 700, 2, 1, 16, SequenceOrder::kZigZag, false, 1, true, 300}, at::kDouble);
}

TEST(RingAttention, LowPrecisionMergesInFp32) {
  for (const bool has_documents : {false, true}) {
    for (int ranks = 1; ranks <= 4; ++ranks)
      expect_oracle({ranks, 2, 65, 4, 2, 16, SequenceOrder::kZigZag, has_documents}, at::kBFloat16);
  }
}

TEST(RingAttention, OneRankOfAGroupHasTheBitsOfNoGroup) {
  for (const bool has_documents : {false, true}) {
    const AttentionCase c{1, 2, 33, 4, 2, 8, SequenceOrder::kZigZag, has_documents};
    const AttentionData data = make_data(c, at::kFloat);
    const Attend whole = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const SequenceSplit&, comm::Communicator&) {
      return whole_attention(q, k, v, c.N, c.K, data.reach);
    };
    expect_same_bits(run_split(c, data, ring(c, data)), run_split(c, data, whole), "one rank");
  }
}

TEST(RingAttention, BitsDoNotDependOnDelaysOverlapOrMemory) {
  const AttentionCase c{4, 2, 61, 4, 2, 8, SequenceOrder::kZigZag, true};
  const AttentionData data = make_data(c, at::kFloat);
  const AttentionData expected = run_split(c, data, ring(c, data));
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Attend slow = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const SequenceSplit& split, comm::Communicator& group) {
      SlowCommunicator slow_group(group, seed);
      const at::Tensor out = ring_attention(q, k, v, c.N, c.K, split, slow_group, data.reach);
      // Backward within the life of the slow group.
      const at::Tensor w = split.local(data.out_BTD, 1, group.rank());
      const auto grads = torch::autograd::grad({(out * w).sum()}, {q, k, v});
      q.mutable_grad() = grads[0];
      k.mutable_grad() = grads[1];
      v.mutable_grad() = grads[2];
      return out.detach().requires_grad_();
    };
    expect_same_bits(run_split(c, data, slow), expected, concat("delays ", seed));
  }
  expect_same_bits(run_split(c, data, ring(c, data, {.overlap = false})), expected, "no overlap");
  expect_same_bits(run_split(c, data, ring(c, data, {.symmetric = false})), expected, "ordinary");
}

TEST(RingAttention, SendsKeysOnceAndTheirGradientsOnce) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const AttentionCase c{ranks, 2, 19, 4, 2, 8};
      const AttentionData data = make_data(c, dtype);
      harness::run_ranks(ranks, [&](comm::Communicator& inner) {
        harness::CountingCommunicator group(inner);
        const SequenceSplit split(c.T, ranks);
        const int rank = group.rank();
        const auto leaf = [&](const at::Tensor& x) {
          return split.local(x, 1, rank).clone().requires_grad_();
        };
        const at::Tensor out = ring_attention(leaf(data.q_BTD), leaf(data.k_BTG), leaf(data.v_BTG),
                                              c.N, c.K, split, group);
        const int64_t keys_sent = c.T - split.num_tokens((rank + 1) % ranks);
        const int64_t keys_received = c.T - split.num_tokens(rank);
        const int64_t n = 2 * c.B * c.K * c.H * static_cast<int64_t>(c10::elementSize(dtype));
        EXPECT_EQ(group.ledger().of(group.name(), "send").bytes, n * keys_sent);
        EXPECT_EQ(group.ledger().of(group.name(), "recv").bytes, n * keys_received);
        EXPECT_EQ(group.ledger().of(group.name()).calls, 2 * (ranks - 1));
        group.ledger().clear();
        out.sum().backward();
        const int64_t n_gradients = dtype == at::kBFloat16 ? 2 * n : n;
        EXPECT_EQ(group.ledger().of(group.name(), "send").bytes,
                  n * keys_sent + n_gradients * (c.T - split.num_tokens(rank)));
        EXPECT_EQ(group.ledger().of(group.name()).calls, 4 * (ranks - 1));
      });
    }
  }
}

TEST(RingAttention, ReadsStridedQueriesAndExpandedGradients) {
  const AttentionCase c{2, 2, 9, 4, 4, 8};
  const AttentionData data = make_data(c, at::kDouble);
  AttentionData ones = data;
  ones.out_BTD = at::ones_like(data.out_BTD);
  const Expected expected = oracle(c, ones);
  const Attend fused = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const SequenceSplit& split, comm::Communicator& group) {
    const at::Tensor qkv = at::cat({q, k, v}, 2);  // as one fused projection gives them
    const int64_t D = c.N * c.H;
    return ring_attention(qkv.narrow(2, 0, D), qkv.narrow(2, D, D), qkv.narrow(2, 2 * D, D), c.N,
                          c.K, split, group);
  };
  expect_close(c, run_split(c, ones, fused), expected);
}

}  // namespace
}  // namespace trireme::parallel
