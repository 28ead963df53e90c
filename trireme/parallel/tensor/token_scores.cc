#include "trireme/parallel/tensor/token_scores.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include <ATen/ATen.h>

#include "trireme/parallel/tensor/linear_cross_entropy.h"

namespace trireme::parallel {
namespace {

// Of this rank's part of the vocabulary: the largest logit, its token, the sum of exp(logit -
// largest), and the target's logit if it is here.
at::Tensor own_stats(const LinearHead& head, const at::Tensor& rows_C, const at::Tensor& targets_C,
                     int64_t first_row) {
  at::Tensor logits_Cv = at::linear(head.x.index_select(0, rows_C), head.w_vD, head.bias_v);
  if (head.softcap > 0) logits_Cv = head.softcap * at::tanh(logits_Cv / head.softcap);
  logits_Cv = logits_Cv.to(at::kDouble);
  const auto [top_C1, token_C1] = logits_Cv.max(1, /*keepdim=*/true);
  const at::Tensor sum_C1 = at::exp(logits_Cv - top_C1).sum(1, /*keepdim=*/true);
  const int64_t v = logits_Cv.size(1);
  const at::Tensor column_C1 = (targets_C - first_row).unsqueeze(1);
  const at::Tensor is_here_C1 = column_C1.ge(0).logical_and(column_C1.lt(v));
  const at::Tensor target_C1 = at::where(is_here_C1, logits_Cv.gather(1, column_C1.clamp(0, v - 1)),
                                         -std::numeric_limits<double>::infinity());
  return at::cat({top_C1, (token_C1 + first_row).to(at::kDouble), sum_C1, target_C1}, 1);
}

}  // namespace

at::Tensor token_scores(const LinearHead& head, const at::Tensor& targets_n,
                        const TokenScoreOptions& options) {
  const at::Tensor asked_r = targets_n.ne(kIgnoredTarget).nonzero().squeeze(1);
  const at::Tensor scores_n3 =
      at::zeros({targets_n.numel(), 3}, head.x.options().dtype(at::kDouble));
  for (int64_t begin = 0; begin < asked_r.numel(); begin += options.chunk_tokens) {
    const int64_t size = std::min(options.chunk_tokens, asked_r.numel() - begin);
    const at::Tensor rows_C = asked_r.narrow(0, begin, size);
    const at::Tensor stats_pC4 =
        gather_stats(own_stats(head, rows_C, targets_n.index_select(0, rows_C), options.first_row),
                     options.axis);
    // Of equal logits, the one of the first rank.
    const auto [top_C, rank_C] = stats_pC4.select(2, 0).max(0);
    const at::Tensor token_C = stats_pC4.select(2, 1).gather(0, rank_C.unsqueeze(0)).squeeze(0);
    const at::Tensor whole_C =
        at::logsumexp(stats_pC4.select(2, 0) + stats_pC4.select(2, 2).log(), 0);
    const at::Tensor target_C = stats_pC4.select(2, 3).amax(0);
    scores_n3.index_copy_(0, rows_C, at::stack({target_C - whole_C, token_C, top_C - whole_C}, 1));
  }
  return scores_n3;
}

}  // namespace trireme::parallel
