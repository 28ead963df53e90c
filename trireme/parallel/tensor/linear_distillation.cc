#include "trireme/parallel/tensor/linear_distillation.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/matrix_product.h"
#include "trireme/parallel/tensor/linear_cross_entropy.h"

namespace trireme::parallel {

// As in linear_cross_entropy(), a chunk's products, losses and gradients follow each other, and the
// gradient is computed in forward. With the vocabulary split over ranks, the divergence of a row is
// put together from those of the ranks' parts: with P_r and Q_r the probabilities that teacher and
// student give the part of rank r, and K_r the divergence within it,
//
//   KL = sum over r of P_r (K_r + log P_r - log Q_r).
//
// Each rank sends K_r and two log-sum-exps, and nothing is subtracted that is large. Where both
// models give the same logits, the divergence and its gradient are exactly zero.

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kHostChunk = 64;
constexpr int64_t kDeviceChunkLogits = int64_t{1} << 24;

// Log-probabilities among this rank's columns, and the log of what these sum up to.
struct LogRows {
  at::Tensor log_Cv;
  at::Tensor log_sum_C;  // fp64
};

LogRows log_rows(const at::Tensor& logits_Cv, double temperature) {
  const at::Tensor top_C1 = logits_Cv.amax(1, /*keepdim=*/true);
  at::Tensor log_Cv = logits_Cv - top_C1;
  if (temperature != 1) log_Cv.div_(temperature);
  const at::Tensor sum_C1 = log_Cv.exp().sum(1, /*keepdim=*/true);
  log_Cv.sub_(sum_C1.log());
  return {log_Cv, (top_C1.to(at::kDouble) / temperature + sum_C1.to(at::kDouble).log()).squeeze(1)};
}

// KL(teacher || student) of each row, and with `wants_gradient` the student's probabilities less
// the teacher's.
// Comm: gather_stats()
RowsLoss divergence_of_rows(const at::Tensor& student_Cv, const at::Tensor& teacher_Cv,
                            double temperature, const TensorAxis& axis, bool wants_gradient) {
  const LogRows student = log_rows(student_Cv, temperature);
  const LogRows teacher = log_rows(teacher_Cv, temperature);
  const at::Tensor within_C =
      (teacher.log_Cv - student.log_Cv).mul_(teacher.log_Cv.exp()).sum(1).to(at::kDouble);
  const at::Tensor all_pC3 =
      gather_stats(at::stack({student.log_sum_C, teacher.log_sum_C, within_C}, 1), axis);
  const at::Tensor of_student_C = at::logsumexp(all_pC3.select(2, 0), 0);
  const at::Tensor of_teacher_C = at::logsumexp(all_pC3.select(2, 1), 0);
  const at::Tensor log_q_pC = all_pC3.select(2, 0) - of_student_C;
  const at::Tensor log_p_pC = all_pC3.select(2, 1) - of_teacher_C;
  RowsLoss result;
  result.losses_C = (all_pC3.select(2, 2) + (log_p_pC - log_q_pC)).mul_(log_p_pC.exp()).sum(0);
  if (!wants_gradient) return result;
  const auto probabilities = [&](const LogRows& rows, const at::Tensor& log_share_pC) {
    if (axis.size() > 1) {
      rows.log_Cv.add_(
          log_share_pC.select(0, axis.rank()).unsqueeze(1).to(rows.log_Cv.scalar_type()));
    }
    return at::Tensor(rows.log_Cv).exp_();
  };
  result.gradient_Cv = probabilities(student, log_q_pC).sub_(probabilities(teacher, log_p_pC));
  return result;
}

struct DistillationCall : torch::CustomClassHolder {
  DistillationOptions options;
  double student_cap = 0;
  LinearHead teacher;
  at::Tensor targets_S;
  at::ScalarType wide{};
  at::ScalarType factors{};  // the student's; see CrossEntropyCall
  bool has_ignored = true;
  bool wants_x = false;
  bool wants_w = false;
  bool wants_b = false;
  at::Tensor cross_entropy, divergence;  // what forward finds beside the loss

  bool wants_gradient() const { return wants_x || wants_w || wants_b; }
  int64_t chunk_tokens(int64_t vocab) const {
    if (options.chunk_tokens > 0) return options.chunk_tokens;
    if (targets_S.is_cpu()) return kHostChunk;
    return std::max<int64_t>(1, kDeviceChunkLogits / std::max<int64_t>(1, vocab));
  }
};

// The type in which the rows of `x` are multiplied.
at::ScalarType factors_of(const at::Tensor& x) {
  const bool widens = x.is_cpu() && !multiplies_narrow(x);
  return widens ? at::promote_types(x.scalar_type(), at::kFloat) : x.scalar_type();
}

// Caps the logits in place. Returns the slope of each if it is wanted and there is a cap.
at::Tensor apply_cap(const at::Tensor& logits_Cv, double cap, bool wants_slope) {
  at::Tensor slope_Cv;
  if (cap <= 0) return slope_Cv;
  logits_Cv.div_(cap).tanh_();
  if (wants_slope) slope_Cv = logits_Cv.square().neg_().add_(1);
  logits_Cv.mul_(cap);
  return slope_Cv;
}

// Adds up the losses of a chunk in the call. Returns the gradient for its logits, if it is wanted.
at::Tensor take_chunk(DistillationCall& call, const at::Tensor& student_Cv,
                      const at::Tensor& teacher_Cv, int64_t start) {
  const auto& [temperature, weight, chunk, axis, first_row, vocab_size] = call.options;
  const bool wants_gradient = call.wants_gradient();
  const at::Tensor slope_Cv = apply_cap(student_Cv, call.student_cap, wants_gradient);
  const at::Tensor targets_C = call.targets_S.narrow(0, start, student_Cv.size(0));
  const bool learns_targets = wants_gradient && weight < 1;
  const RowsLoss targets =
      loss_of_rows({.logits_Cv = student_Cv,
                    .targets_C = targets_C,
                    .first_row = first_row,
                    .has_ignored = call.has_ignored},
                   axis, learns_targets ? std::optional(call.wide) : std::nullopt);
  const RowsLoss divergence =
      divergence_of_rows(student_Cv, teacher_Cv.to(call.wide), temperature, axis, wants_gradient);
  if (call.has_ignored) {
    const at::Tensor ignored_C = targets_C.eq(kIgnoredTarget);
    divergence.losses_C.masked_fill_(ignored_C, 0);
    if (wants_gradient) divergence.gradient_Cv.masked_fill_(ignored_C.unsqueeze(1), 0);
  }
  call.cross_entropy.add_(targets.sum);
  call.divergence.add_(divergence.losses_C.sum());
  if (!wants_gradient) return {};
  // T^2 times the derivative of logits / T.
  at::Tensor gradient_Cv = divergence.gradient_Cv.mul_(weight * temperature);
  if (learns_targets) gradient_Cv.add_(targets.gradient_Cv, 1 - weight);
  if (slope_Cv.defined()) gradient_Cv.mul_(slope_Cv);
  return gradient_Cv.to(call.factors);
}

class LinearDistillationFunction : public torch::autograd::Function<LinearDistillationFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight_vD,
                            const std::optional<at::Tensor>& bias_v,
                            const c10::intrusive_ptr<DistillationCall>& call) {
    const TensorAxis& axis = call->options.axis;
    const LinearHead& teacher = call->teacher;
    const int64_t S = call->targets_S.numel(), v = weight_vD.size(0);
    const at::Tensor x_SD = gather_rows(x, S, axis).wait().to(call->factors);
    const at::ScalarType teacher_factors = factors_of(teacher.x);
    const at::Tensor teacher_x_SD = gather_rows(teacher.x, S, axis).wait().to(teacher_factors);
    const ProductFactor w = weight_vD.to(call->factors);
    const ProductFactor teacher_w = teacher.w_vD.to(teacher_factors);
    const auto wide = x_SD.options().dtype(call->wide);
    const int64_t chunk = std::max<int64_t>(1, std::min(call->chunk_tokens(v), S));
    const at::Tensor student_Cv = at::empty({chunk, v}, wide);
    const at::Tensor taught_Cv =
        at::empty({chunk, v}, wide.dtype(at::promote_types(teacher_factors, at::kFloat)));
    at::Tensor grad_x_SD, grad_w_vD, grad_b_v;
    if (call->wants_x) grad_x_SD = empty_on(axis, x_SD.sizes(), wide);
    if (call->wants_w) grad_w_vD = at::zeros(weight_vD.sizes(), wide);
    if (call->wants_b) grad_b_v = at::zeros(bias_v->sizes(), wide);
    call->cross_entropy = at::zeros({}, wide.dtype(at::kDouble));
    call->divergence = at::zeros({}, wide.dtype(at::kDouble));
    for (int64_t start = 0; start < S; start += chunk) {
      const int64_t C = std::min(chunk, S - start);
      const ProductFactor x_CD = x_SD.narrow(0, start, C);
      const at::Tensor logits_Cv = student_Cv.narrow(0, 0, C);
      multiply_on_device(logits_Cv, x_CD, w.t());
      if (bias_v) logits_Cv.add_(*bias_v);
      const at::Tensor teacher_Cv = taught_Cv.narrow(0, 0, C);
      multiply_on_device(teacher_Cv, teacher_x_SD.narrow(0, start, C), teacher_w.t());
      if (teacher.bias_v.defined()) teacher_Cv.add_(teacher.bias_v);
      apply_cap(teacher_Cv, teacher.softcap, /*wants_slope=*/false);
      const at::Tensor found_Cv = take_chunk(*call, logits_Cv, teacher_Cv, start);
      if (!found_Cv.defined()) continue;
      if (call->wants_b) grad_b_v.add_(found_Cv.sum(0, false, call->wide));
      const ProductFactor gradient_Cv = found_Cv;
      if (call->wants_x) multiply_on_device(grad_x_SD.narrow(0, start, C), gradient_Cv, w);
      if (call->wants_w) multiply_on_device(grad_w_vD, gradient_Cv.t(), x_CD, 1);
    }
    // After all chunks: one sum over ranks and not one for each.
    if (call->wants_x) ctx->saved_data["grad_x"] = sum_rows(grad_x_SD, axis).wait().view(x.sizes());
    if (call->wants_w) ctx->saved_data["grad_w"] = grad_w_vD;
    if (call->wants_b) ctx->saved_data["grad_b"] = grad_b_v;
    ctx->saved_data["x_dtype"] = x.scalar_type();
    ctx->saved_data["w_dtype"] = weight_vD.scalar_type();
    ctx->saved_data["b_dtype"] = bias_v ? bias_v->scalar_type() : x.scalar_type();
    const auto& options = call->options;
    return call->cross_entropy * (1 - options.weight) +
           call->divergence * (options.weight * options.temperature * options.temperature);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list result(4);
    TRIREME_ASSERT(!ctx->saved_data.empty(),
                   "linear_distillation's backward runs once: its gradients were handed out");
    constexpr const char* kNames[] = {"x", "w", "b"};
    for (size_t i = 0; i < std::size(kNames); ++i) {
      const std::string name = kNames[i];
      const auto found = ctx->saved_data.find("grad_" + name);
      if (found == ctx->saved_data.end()) continue;
      const at::Tensor grad = found->second.toTensor();
      result[i] = grad.mul_(grads[0].to(grad.scalar_type()))
                      .to(ctx->saved_data[name + "_dtype"].toScalarType());
    }
    ctx->saved_data.clear();
    return result;
  }
};

}  // namespace

DistillationLoss linear_distillation(const LinearHead& student, const LinearHead& teacher,
                                     const at::Tensor& targets_BT,
                                     const DistillationOptions& options) {
  TRIREME_ASSERT(options.temperature > 0 && options.weight >= 0 && options.weight <= 1,
                 "temperature ", options.temperature, " and weight ", options.weight);
  TRIREME_ASSERT(student.w_vD.size(0) == teacher.w_vD.size(0), "a student's ", student.w_vD.size(0),
                 " rows of the vocabulary beside a teacher's ", teacher.w_vD.size(0));
  auto call = c10::make_intrusive<DistillationCall>();
  call->options = options;
  call->student_cap = student.softcap;
  call->teacher = {.x = view_rows(teacher.x.detach()).contiguous(),
                   .w_vD = teacher.w_vD.detach(),
                   .bias_v = teacher.bias_v.defined() ? teacher.bias_v.detach() : at::Tensor(),
                   .softcap = teacher.softcap};
  call->targets_S = targets_BT.reshape({-1}).contiguous();
  DistillationLoss loss;
  loss.count = count_targets(call->targets_S.cpu(),
                             options.vocab_size > 0 ? options.vocab_size : student.w_vD.size(0));
  call->has_ignored = loss.count < call->targets_S.numel();
  call->wide = at::promote_types(student.x.scalar_type(), at::kFloat);
  call->factors = factors_of(student.x);
  const at::Tensor x_sD = view_rows(student.x).contiguous();
  const bool records = at::GradMode::is_enabled() && options.weight > 0;
  call->wants_x = records && x_sD.requires_grad();
  call->wants_w = records && student.w_vD.requires_grad();
  call->wants_b = records && student.bias_v.defined() && student.bias_v.requires_grad();
  const auto bias_v = student.bias_v.defined() ? std::optional(student.bias_v) : std::nullopt;
  {
    const at::AutoGradMode mode(records);
    loss.sum = LinearDistillationFunction::apply(x_sD, student.w_vD, bias_v, call);
  }
  loss.cross_entropy = call->cross_entropy;
  loss.divergence = call->divergence;
  if (options.weight > 0) return loss;
  loss.sum = linear_cross_entropy(student.x, student.w_vD, targets_BT,
                                  {.axis = options.axis,
                                   .first_row = options.first_row,
                                   .vocab_size = options.vocab_size,
                                   .softcap = student.softcap,
                                   .bias_v = student.bias_v})
                 .sum;
  return loss;
}

}  // namespace trireme::parallel
