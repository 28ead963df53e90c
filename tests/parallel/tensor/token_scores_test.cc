#include "trireme/parallel/tensor/token_scores.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/gradients.h"
#include "tests/harness/ranks.h"
#include "trireme/mesh/layout.h"
#include "trireme/parallel/tensor/linear_cross_entropy.h"

namespace trireme::parallel {
namespace {

using harness::values;

// Uneven parts of the vocabulary, with a bias and a cap, targets that are not asked, and rows whose
// largest logits are the same on several ranks.
TEST(TokenScores, AreThoseOfTheWholeVocabularyOnAnyRanks) {
  constexpr int64_t kTokens = 9, kWidth = 5, kVocab = 11;
  for (const double softcap : {0.0, 0.7}) {
    const at::Tensor x_nD = values({kTokens, kWidth}, 0.3);
    at::Tensor w_VD = values({kVocab, kWidth}, 0.7), bias_V = values({kVocab}, 0.2);
    w_VD[9].copy_(w_VD[2]);
    bias_V[2].fill_(40);
    bias_V[9].fill_(40);
    at::Tensor targets_n = at::arange(kTokens, at::kLong);
    targets_n[0].fill_(10);
    targets_n[4].fill_(kIgnoredTarget);
    at::Tensor logits_nV = at::linear(x_nD, w_VD, bias_V);
    if (softcap > 0) logits_nV = softcap * at::tanh(logits_nV / softcap);
    const at::Tensor log_p_nV = at::log_softmax(logits_nV, 1);
    at::Tensor expected_n3 =
        at::stack({log_p_nV.gather(1, targets_n.clamp_min(0).unsqueeze(1)).squeeze(1),
                   at::full({kTokens}, 2, at::kDouble), std::get<0>(log_p_nV.max(1))},
                  1);
    expected_n3[4].zero_();
    for (const int ranks : {1, 2, 3, 4}) {
      harness::run_ranks(ranks, [&](comm::Communicator& group) {
        const mesh::Range own = mesh::split_range(kVocab, ranks, group.rank());
        const at::Tensor found_n3 = token_scores(
            {.x = x_nD,
             .w_vD = w_VD.narrow(0, own.offset, own.size),
             .bias_v = bias_V.narrow(0, own.offset, own.size),
             .softcap = softcap},
            targets_n, {.axis = {.group = &group}, .first_row = own.offset, .chunk_tokens = 4});
        EXPECT_LT((found_n3 - expected_n3).abs().max().item<double>(), 1e-12);
        EXPECT_TRUE(at::equal(found_n3.select(1, 1), expected_n3.select(1, 1)));
      });
    }
  }
}

TEST(TokenScores, NothingAskedIsNothingSent) {
  const at::Tensor none_n = at::full({3}, kIgnoredTarget, at::kLong);
  const LinearHead head{.x = values({3, 2}, 0.1), .w_vD = values({4, 2}, 0.3)};
  EXPECT_TRUE(at::equal(token_scores(head, none_n), at::zeros({3, 3}, at::kDouble)));
  const LinearHead empty{.x = values({0, 2}, 0.1), .w_vD = values({4, 2}, 0.3)};
  EXPECT_EQ(token_scores(empty, at::empty({0}, at::kLong)).sizes(), (at::IntArrayRef{0, 3}));
}

}  // namespace
}  // namespace trireme::parallel
