#include "trireme/parallel/tensor/top_outputs.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trireme/base/error.h"
#include "trireme/parallel/tensor/divergence_rows.h"
#include "trireme/parallel/tensor/linear_cross_entropy.h"

namespace trireme::parallel {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

// The k most probable tokens of each row, ascending, from each rank's candidates, and the
// log-probabilities of these.
// Comm: 8 (2k + 1) bytes per row from each rank to all
TopOutputs choose_tokens(const LogRows& rows, const TopOptions& options) {
  const int64_t C = rows.log_Cv.size(0), k = options.top_k;
  const int64_t own = std::min(k, rows.log_Cv.size(1));
  const auto [log_Cn, column_Cn] = rows.log_Cv.topk(own, 1);
  // A rank with fewer columns than k offers some that have no probability.
  const at::Tensor mine_C = at::full({C, 1 + 2 * k}, kNone, rows.log_sum_C.options());
  mine_C.select(1, 0).copy_(rows.log_sum_C);
  mine_C.narrow(1, 1, own).copy_(log_Cn.to(at::kDouble) + rows.log_sum_C.unsqueeze(1));
  mine_C.narrow(1, 1 + k, own).copy_(column_Cn + options.first_row);
  const at::Tensor all_pC = gather_stats(mine_C, options.axis);
  const at::Tensor whole_C1 = at::logsumexp(all_pC.select(2, 0), 0).unsqueeze(1);
  const auto of_row = [&](int64_t first) {
    return all_pC.narrow(2, first, k).transpose(0, 1).reshape({C, -1});
  };
  const auto [best_Ck, place_Ck] = of_row(1).topk(k, 1);
  const at::Tensor found_Ck = of_row(1 + k).gather(1, place_Ck).to(at::kLong);
  const auto [tokens_Ck, order_Ck] = found_Ck.sort(1);
  return {.tokens_Sk = tokens_Ck,
          .log_p_Sk = best_Ck.gather(1, order_Ck) - whole_C1,
          .log_rest_S = whole_C1.squeeze(1)};
}

}  // namespace

TopOutputs linear_top_outputs(const LinearHead& head, int64_t num_tokens,
                              const TopOptions& options) {
  const int64_t v = head.w_vD.size(0), k = options.top_k;
  const int64_t V = options.vocab_size > 0 ? options.vocab_size : v;
  TRIREME_ASSERT(options.temperature > 0 && k >= 1 && k <= V, "temperature ", options.temperature,
                 " and k ", k, " of ", V, " tokens");
  const at::NoGradGuard guard;
  const int64_t chunk = chunk_rows(options.chunk_tokens, num_tokens, v, head.x.device());
  FrozenLogits logits(head, num_tokens, chunk, options.axis);
  const auto wide = head.x.options().dtype(at::kDouble);
  TopOutputs all{.tokens_Sk = at::empty({num_tokens, k}, wide.dtype(at::kLong)),
                 .log_p_Sk = at::empty({num_tokens, k}, wide),
                 .log_rest_S = at::empty({num_tokens}, wide)};
  for (int64_t start = 0; start < num_tokens; start += chunk) {
    const int64_t C = std::min(chunk, num_tokens - start);
    const LogRows rows = log_rows(logits.rows(start, C), options.temperature);
    const TopOutputs found = choose_tokens(rows, options);
    // Summed up as it is, not what the others leave of 1.
    const at::Tensor own_C =
        log_rest_of_rows(rows, columns_of(found.tokens_Sk, options.first_row, v));
    const at::Tensor rest_pC =
        gather_stats((own_C + rows.log_sum_C).unsqueeze(1), options.axis).select(2, 0);
    all.tokens_Sk.narrow(0, start, C).copy_(found.tokens_Sk);
    all.log_p_Sk.narrow(0, start, C).copy_(found.log_p_Sk);
    all.log_rest_S.narrow(0, start, C).copy_(at::logsumexp(rest_pC, 0) - found.log_rest_S);
  }
  return all;
}

}  // namespace trireme::parallel
