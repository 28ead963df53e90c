#include "trireme/parallel/context/context_attention.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/context/attention_oracle.h"
#include "trireme/base/error.h"
#include "trireme/parallel/context/ring_attention.h"

namespace trireme::parallel {
namespace {

Attend all_to_all(const AttentionCase& c, const AttentionData& data) {
  return [c, reach = data.reach](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const SequenceSplit& split, comm::Communicator& group) {
    return all_to_all_attention(q, k, v, c.N, c.K, split, group, reach);
  };
}

void expect_oracle(const AttentionCase& c, at::ScalarType dtype) {
  const AttentionData data = make_data(c, dtype);
  expect_close(c, run_split(c, data, all_to_all(c, data)), oracle(c, data));
}

class AllToAllAttention : public testing::TestWithParam<int> {};

TEST_P(AllToAllAttention, IsOneRanksAttentionInEveryShape) {
  constexpr int64_t kHeads[][2] = {{4, 4}, {4, 2}, {6, 2}, {4, 1}};
  uint64_t seed = 0;
  for (const SequenceOrder order : {SequenceOrder::kContiguous, SequenceOrder::kZigZag}) {
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
INSTANTIATE_TEST_SUITE_P(Worlds, AllToAllAttention, testing::Values(1, 2, 3, 4));

TEST_P(AllToAllAttention, WithoutCausalityReadsEveryToken) {
  for_each_full_case(GetParam(), [](const AttentionCase& c) { expect_oracle(c, at::kDouble); });
}

TEST(AllToAllAttention, HeadsThatDoNotDivideAmongManyRanks) {
  for (int ranks = 5; ranks <= 8; ++ranks) {
    for (const bool has_documents : {false, true})
      expect_oracle({ranks, 1, 37, 9, 3, 8, SequenceOrder::kZigZag, has_documents}, at::kDouble);
  }
}

TEST(AllToAllAttention, LowPrecisionIsOneRanksToo) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    expect_oracle({ranks, 2, 65, 4, 1, 16, SequenceOrder::kZigZag, true}, at::kBFloat16);
}

TEST(AllToAllAttention, EveryRunHasTheSameBits) {
  for (const int ranks : {1, 2, 3, 4}) {
    const AttentionCase c{ranks, 2, 150, 6, 2, 8, SequenceOrder::kZigZag, true};
    const AttentionData data = make_data(c, at::kFloat);
    expect_same_bits(run_split(c, data, all_to_all(c, data)),
                     run_split(c, data, all_to_all(c, data)), "run again");
  }
}

TEST(AllToAllAttention, BitsDoNotDependOnTheMemoryOfMessages) {
  const AttentionCase c{3, 2, 61, 6, 2, 8, SequenceOrder::kZigZag, true};
  const AttentionData data = make_data(c, at::kFloat);
  const Attend ordinary = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const SequenceSplit& split, comm::Communicator& group) {
    return all_to_all_attention(q, k, v, c.N, c.K, split, group, data.reach, {.symmetric = false});
  };
  expect_same_bits(run_split(c, data, ordinary), run_split(c, data, all_to_all(c, data)),
                   "ordinary");
}

TEST(AllToAllAttention, TakesALocalAttentionOfTheCaller) {
  const AttentionCase c{2, 2, 9, 4, 2, 8};
  const AttentionData data = make_data(c, at::kDouble);
  const Attend own = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const SequenceSplit& split, comm::Communicator& group) {
    const LocalAttention attention = [](const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, int64_t heads, int64_t kv_heads) {
      EXPECT_EQ(heads, 2);
      EXPECT_EQ(kv_heads, 1);
      EXPECT_EQ(q.size(1), 9);
      return whole_attention(q, k, v, heads, kv_heads);
    };
    return all_to_all_attention(q, k, v, c.N, c.K, split, group, attention);
  };
  expect_close(c, run_split(c, data, own), oracle(c, data));
}

TEST(AllToAllAttention, SendsEachHeadOnceEachWay) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const int64_t K : {4, 2, 1}) {
      const AttentionCase c{ranks, 2, 19, 4, K, 8};
      const AttentionData data = make_data(c, at::kFloat);
      harness::run_ranks(ranks, [&](comm::Communicator& inner) {
        harness::CountingCommunicator group(inner);
        const SequenceSplit split(c.T, ranks);
        const int rank = group.rank();
        const auto leaf = [&](const at::Tensor& x) {
          return split.local(x, 1, rank).clone().requires_grad_();
        };
        const at::Tensor out = all_to_all_attention(leaf(data.q_BTD), leaf(data.k_BTG),
                                                    leaf(data.v_BTG), c.N, c.K, split, group);
        int64_t kv_needed = 0;  // K' of the header
        for (int r = 0; r < ranks; ++r) {
          const mesh::Range heads = mesh::split_range(c.N, ranks, r);
          const int64_t copies = c.N / K;
          kv_needed += (heads.offset + heads.size - 1) / copies - heads.offset / copies + 1;
        }
        const auto sent = [&](int64_t tokens, int64_t heads) {
          return c.B * tokens * heads * c.H * 4;
        };
        const int64_t t = split.num_tokens(rank);
        const mesh::Range mine = mesh::split_range(c.N, ranks, rank);
        const int64_t kv_mine =
            (mine.offset + mine.size - 1) / (c.N / K) - mine.offset / (c.N / K) + 1;
        const int64_t m = mine.size + 2 * kv_mine;
        // This rank's tokens of others' heads, and others' tokens of its heads.
        const int64_t forward = sent(t, c.N + 2 * kv_needed - m) + sent(c.T - t, mine.size);
        EXPECT_EQ(group.sent_by_all_to_all(), forward);
        EXPECT_EQ(group.ledger().of(group.name()).calls, 2);
        out.sum().backward();
        EXPECT_EQ(group.sent_by_all_to_all() - forward,
                  sent(t, c.N - mine.size) + sent(c.T - t, m));
        EXPECT_EQ(group.ledger().of(group.name()).calls, 4);
      });
    }
  }
}

TEST(AllToAllAttention, MoreRanksThanHeadsIsRefused) {
  harness::run_ranks(3, [](comm::Communicator& group) {
    const at::Tensor x = at::zeros({1, 2, 16});
    try {
      static_cast<void>(all_to_all_attention(x, x, x, 2, 2, SequenceSplit(6, 3), group));
      FAIL() << "took 2 heads for 3 ranks";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("ring attention"), std::string::npos);
    }
  });
}

}  // namespace
}  // namespace trireme::parallel
