#include "trireme/parallel/context/context_attention.h"

#include <random>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "tests/parallel/context/attention_oracle.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

constexpr int kRandomCases = 120;

Attend attend(const AttentionCase& c, const AttentionData& data, ContextForm form) {
  return
      [c, form, reach = data.reach](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const SequenceSplit& split, comm::Communicator& group) {
        const ContextParallel context{group, split, form};
        EXPECT_EQ(context.num_tokens(), q.size(1));
        return context_attention(q, k, v, c.N, c.K, context, reach);
      };
}

AttentionCase random_case(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto up_to = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  AttentionCase c;
  c.seed = seed;
  c.ranks = static_cast<int>(up_to(6));
  c.B = up_to(3);
  c.T = up_to(random() % 4 == 0 ? 300 : 40);
  c.K = up_to(3);
  c.N = c.K * up_to(3);
  c.H = 4 * up_to(4);
  c.order = random() % 4 == 0 ? SequenceOrder::kContiguous : SequenceOrder::kZigZag;
  c.has_documents = random() % 2 == 0;
  c.causal = random() % 3 != 0;
  if (c.causal && random() % 3 == 0) c.window = up_to(c.T + 4);
  if (random() % 3 == 0) c.scores.scale = 0.05 * static_cast<double>(up_to(20));
  // Scores are about as large as the head's width allows, so that most are far into the cap.
  if (random() % 3 == 0) c.scores.softcap = 0.25 * static_cast<double>(up_to(8));
  c.has_sinks = random() % 3 == 0;
  return c;
}

// A failure names its case with the seed; --gtest_filter=*RandomCases*/<seed> runs it again.
class RandomCases : public testing::TestWithParam<int> {};

TEST_P(RandomCases, BothFormsAreOneRanksAttention) {
  for (int seed = GetParam(); seed < GetParam() + 10; ++seed) {
    const AttentionCase c = random_case(seed);
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      const AttentionData data = make_data(c, dtype);
      const Expected expected = oracle(c, data);
      expect_close(c, run_split(c, data, attend(c, data, ContextForm::kRing)), expected);
      if (c.N >= c.ranks)
        expect_close(c, run_split(c, data, attend(c, data, ContextForm::kAllToAll)), expected);
      if (HasFatalFailure()) return;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomCases, testing::Range(0, kRandomCases, 10));

// Longer than the blocks of queries whose capped scores exist at once. bf16 computes a cap in fp32.
TEST(ContextAttention, CapsScalesAndSinksHoldInLongSequencesAndEveryDtype) {
  for (const auto& [scores, has_sinks] : {std::pair(ScoreForm{.softcap = 1.5}, false),
                                          {ScoreForm{.scale = 0.4}, false},
                                          {ScoreForm{}, true}}) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      for (const auto& [ranks, window] : {std::pair(1, 0), {2, 0}, {3, 70}}) {
        const AttentionCase c{.ranks = ranks,
                              .T = 530,
                              .N = 4,
                              .K = 2,
                              .seed = 5,
                              .window = window,
                              .scores = scores,
                              .has_sinks = has_sinks};
        const AttentionData data = make_data(c, dtype);
        const Expected expected = oracle(c, data);
        for (const ContextForm form : {ContextForm::kRing, ContextForm::kAllToAll}) {
          expect_close(c, run_split(c, data, attend(c, data, form)), expected);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(ContextAttention, ACausalTokenReadsNothingAhead) {
  const AttentionCase c{3, 1, 20, 3, 3, 8};
  const AttentionData data = make_data(c, at::kDouble);
  AttentionData changed = data;
  changed.k_BTG = data.k_BTG.clone();
  changed.v_BTG = data.v_BTG.clone();
  changed.k_BTG.narrow(1, 11, 9).fill_(100);
  changed.v_BTG.narrow(1, 11, 9).fill_(100);
  for (const ContextForm form : {ContextForm::kRing, ContextForm::kAllToAll}) {
    harness::assert_same_bits(run_split(c, changed, attend(c, data, form)).out_BTD.narrow(1, 0, 11),
                              run_split(c, data, attend(c, data, form)).out_BTD.narrow(1, 0, 11),
                              "tokens before");
  }
}

TEST(ContextAttention, WithoutSequencesTheResultsAreEmptyAndBackwardRuns) {
  for (const bool causal : {false, true}) {
    for (const int ranks : {1, 2, 3}) {
      const AttentionCase c{ranks, 0, 7, 4, 2, 8, SequenceOrder::kContiguous, false, 1, causal};
      const AttentionData data = make_data(c, at::kFloat);
      for (const ContextForm form : {ContextForm::kRing, ContextForm::kAllToAll}) {
        const AttentionData result = run_split(c, data, attend(c, data, form));
        EXPECT_EQ(result.out_BTD.sizes(), at::IntArrayRef({0, 7, 32}));
        EXPECT_EQ(result.k_BTG.sizes(), at::IntArrayRef({0, 7, 16}));
      }
    }
  }
}

TEST(ContextAttention, AFormThatCannotIsRefusedBeforeAnythingStarts) {
  EXPECT_NO_THROW(check_context(ContextForm::kRing, 1, 8));
  EXPECT_NO_THROW(check_context(ContextForm::kAllToAll, 8, 8));
  EXPECT_THROW(check_context(ContextForm::kAllToAll, 7, 8), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
