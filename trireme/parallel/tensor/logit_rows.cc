#include "trireme/parallel/tensor/logit_rows.h"

#include <limits>

#include <ATen/ATen.h>

#include "trireme/parallel/tensor/linear_cross_entropy.h"

namespace trireme::parallel::inline internal {
namespace {

constexpr double kNoTarget = -std::numeric_limits<double>::infinity();

}  // namespace

at::Tensor gather_stats(const at::Tensor& mine_C3, const TensorAxis& axis) {
  if (axis.size() == 1) return mine_C3.unsqueeze(0);
  const at::Tensor all =
      empty_on(axis, {axis.size(), mine_C3.size(0), kNumStats}, mine_C3.options());
  const auto start = MovingRows::Clock::now();
  return MovingRows(axis, all, axis.group->all_gather(all.unbind(0), mine_C3), start).wait();
}

RowsLoss loss_of_rows(const LogitRows& rows, const TensorAxis& axis,
                      std::optional<at::ScalarType> gradient) {
  const auto& [logits_Cv, targets_C, first_row, has_ignored] = rows;
  const at::Tensor local_C = targets_C - first_row;
  const at::Tensor column_C1 = local_C.clamp(0, logits_Cv.size(1) - 1).unsqueeze(1);
  at::Tensor log_softmax_Cv = at::log_softmax(logits_Cv, 1);
  at::Tensor target_C1 = log_softmax_Cv.gather(1, column_C1);
  at::Tensor loss_C = target_C1.squeeze(1).to(at::kDouble).neg();
  at::Tensor is_here_C1;
  if (axis.size() > 1) {
    is_here_C1 = local_C.ge(0).logical_and_(local_C.lt(logits_Cv.size(1))).unsqueeze(1);
    const at::Tensor logit_C1 = logits_Cv.gather(1, column_C1).to(at::kDouble);
    const at::Tensor top_C1 = logit_C1 - target_C1;
    const at::Tensor all_pC3 = gather_stats(
        at::cat({top_C1, at::ones_like(top_C1), at::where(is_here_C1, logit_C1, kNoTarget)}, 1),
        axis);
    const at::Tensor whole_C = at::logsumexp(all_pC3.select(2, 0) + all_pC3.select(2, 1).log(), 0);
    loss_C = whole_C - all_pC3.select(2, 2).amax(0);
    const at::Tensor shift_C1 = (top_C1 - whole_C.unsqueeze(1)).to(logits_Cv.scalar_type());
    log_softmax_Cv.add_(shift_C1);
    target_C1.add_(shift_C1);
  }
  const at::Tensor ignored_C = has_ignored ? targets_C.eq(kIgnoredTarget) : at::Tensor();
  if (has_ignored) loss_C.masked_fill_(ignored_C, 0);
  RowsLoss result;
  result.sum = loss_C.sum();
  if (!gradient) return result;
  result.gradient_Cv = at::empty(logits_Cv.sizes(), logits_Cv.options().dtype(gradient));
  at::exp_out(result.gradient_Cv, log_softmax_Cv);
  // softmax - 1 without cancellation.
  at::Tensor at_target_C1 = target_C1.expm1();
  if (is_here_C1.defined()) at_target_C1 = at::where(is_here_C1, at_target_C1, target_C1.exp());
  result.gradient_Cv.scatter_(1, column_C1, at_target_C1.to(*gradient));
  if (has_ignored) result.gradient_Cv.masked_fill_(ignored_C.unsqueeze(1), 0);
  return result;
}

}  // namespace trireme::parallel::inline internal
