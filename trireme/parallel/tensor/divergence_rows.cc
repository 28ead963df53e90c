#include "trireme/parallel/tensor/divergence_rows.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>

namespace trireme::parallel {

// With the vocabulary split over ranks, the divergence of a row is put together from those of the
// ranks' parts: with P_r and Q_r the probabilities that teacher and student give the part of rank
// r, and K_r the divergence within it,
//
//   KL = sum over r of P_r (K_r + log P_r - log Q_r).
//
// Each rank sends K_r and two log-sum-exps, and nothing is subtracted that is large. Where both
// models give the same logits, the divergence and its gradient are exactly zero.
//
// Of a teacher's k tokens, with p and q the probabilities of each class, the divergence is the sum
// of p (log p - log q) over the tokens and the rest. Its derivative by the logit of a token in the
// rest is q - p_rest q / q_rest: the teacher says nothing about how the rest is divided, so the
// student's own division stays.

namespace {

constexpr int64_t kHostChunk = 64;
constexpr int64_t kDeviceChunkLogits = int64_t{1} << 24;
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// The log-probabilities of whole rows, in place of those among this rank's columns.
at::Tensor whole_rows(const LogRows& rows, const at::Tensor& log_share_pC, const TensorAxis& axis) {
  if (axis.size() == 1) return rows.log_Cv;
  return rows.log_Cv.add_(
      log_share_pC.select(0, axis.rank()).unsqueeze(1).to(rows.log_Cv.scalar_type()));
}

}  // namespace

int64_t chunk_rows(int64_t asked, int64_t num_rows, int64_t num_columns, at::Device device) {
  if (asked == 0 && device.is_cpu()) asked = kHostChunk;
  if (asked == 0) asked = kDeviceChunkLogits / std::max<int64_t>(1, num_columns);
  return std::max<int64_t>(1, std::min(asked, num_rows));
}

LogRows log_rows(const at::Tensor& logits_Cv, double temperature) {
  const at::Tensor top_C1 = logits_Cv.amax(1, /*keepdim=*/true);
  at::Tensor log_Cv = logits_Cv - top_C1;
  if (temperature != 1) log_Cv.div_(temperature);
  const at::Tensor sum_C1 = log_Cv.exp().sum(1, /*keepdim=*/true);
  log_Cv.sub_(sum_C1.log());
  return {log_Cv, (top_C1.to(at::kDouble) / temperature + sum_C1.to(at::kDouble).log()).squeeze(1)};
}

TokenColumns columns_of(const at::Tensor& tokens_Ck, int64_t first_row, int64_t num_columns) {
  const at::Tensor local_Ck = tokens_Ck - first_row;
  TokenColumns columns{.is_here_Ck = local_Ck.ge(0).logical_and_(local_Ck.lt(num_columns)),
                       .column_Ck = local_Ck.clamp(0, num_columns - 1),
                       .is_top_Cv = {}};
  // Other ranks' tokens take a column that is dropped.
  const at::Tensor is_top =
      at::zeros({tokens_Ck.size(0), num_columns + 1}, tokens_Ck.options().dtype(at::kBool));
  is_top.scatter_(1, at::where(columns.is_here_Ck, local_Ck, num_columns), true);
  columns.is_top_Cv = is_top.narrow(1, 0, num_columns);
  return columns;
}

at::Tensor log_rest_of_rows(const LogRows& rows, const TokenColumns& columns) {
  return at::logsumexp(rows.log_Cv.masked_fill(columns.is_top_Cv, kMinusInfinity), 1)
      .to(at::kDouble);
}

RowsLoss divergence_from_logits(const StudentRows& student, const at::Tensor& teacher_Cv,
                                const TensorAxis& axis) {
  const LogRows of_student = log_rows(student.logits_Cv, student.temperature);
  const LogRows of_teacher = log_rows(teacher_Cv, student.temperature);
  const at::Tensor within_C =
      (of_teacher.log_Cv - of_student.log_Cv).mul_(of_teacher.log_Cv.exp()).sum(1).to(at::kDouble);
  const at::Tensor all_pC3 =
      gather_stats(at::stack({of_student.log_sum_C, of_teacher.log_sum_C, within_C}, 1), axis);
  const auto log_shares = [&](int64_t i) {
    return all_pC3.select(2, i) - at::logsumexp(all_pC3.select(2, i), 0);
  };
  const at::Tensor log_q_pC = log_shares(0), log_p_pC = log_shares(1);
  RowsLoss result;
  result.losses_C = (all_pC3.select(2, 2) + (log_p_pC - log_q_pC)).mul_(log_p_pC.exp()).sum(0);
  if (!student.wants_gradient) return result;
  result.gradient_Cv = whole_rows(of_student, log_q_pC, axis)
                           .exp_()
                           .sub_(whole_rows(of_teacher, log_p_pC, axis).exp_());
  return result;
}

RowsLoss divergence_from_top(const StudentRows& student, const TopOutputs& teacher,
                             int64_t first_row, const TensorAxis& axis) {
  const LogRows rows = log_rows(student.logits_Cv, student.temperature);
  const TokenColumns columns = columns_of(teacher.tokens_Sk, first_row, rows.log_Cv.size(1));
  const at::Tensor log_p_Ck = teacher.log_p_Sk.to(at::kDouble);
  const at::Tensor p_Ck = log_p_Ck.exp().mul_(columns.is_here_Ck);
  // Of this rank's tokens, with the student's log-probabilities among its columns.
  const at::Tensor log_q_Ck = rows.log_Cv.gather(1, columns.column_Ck).to(at::kDouble);
  const at::Tensor all_pC4 =
      gather_stats(at::stack({rows.log_sum_C, log_rest_of_rows(rows, columns), p_Ck.sum(1),
                              (p_Ck * (log_p_Ck - log_q_Ck)).sum(1)},
                             1),
                   axis);
  const at::Tensor log_share_pC = all_pC4.select(2, 0) - at::logsumexp(all_pC4.select(2, 0), 0);
  const at::Tensor log_p_rest_C = teacher.log_rest_S.to(at::kDouble);
  const at::Tensor log_q_rest_C = at::logsumexp(all_pC4.select(2, 1) + log_share_pC, 0);
  // How much more of the rest the teacher has; no log where it has none of it.
  const at::Tensor log_ratio_C =
      at::where(log_p_rest_C.isinf(), log_p_rest_C, log_p_rest_C - log_q_rest_C);
  RowsLoss result;
  result.losses_C = (all_pC4.select(2, 3) - all_pC4.select(2, 2) * log_share_pC).sum(0);
  result.losses_C.add_(at::where(log_p_rest_C.isinf(), 0, log_p_rest_C.exp() * log_ratio_C));
  if (!student.wants_gradient) return result;
  const at::Tensor log_q_Cv = whole_rows(rows, log_share_pC, axis);
  const at::ScalarType wide = log_q_Cv.scalar_type();
  const at::Tensor target_Cv = (log_q_Cv + log_ratio_C.unsqueeze(1).to(wide)).exp_();
  target_Cv.masked_fill_(columns.is_top_Cv, 0).scatter_add_(1, columns.column_Ck, p_Ck.to(wide));
  result.gradient_Cv = at::Tensor(log_q_Cv).exp_().sub_(target_Cv);
  return result;
}

}  // namespace trireme::parallel
