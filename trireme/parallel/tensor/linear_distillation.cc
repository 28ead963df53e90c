#include "trireme/parallel/tensor/linear_distillation.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/matrix_product.h"
#include "trireme/parallel/tensor/divergence_rows.h"
#include "trireme/parallel/tensor/linear_cross_entropy.h"

namespace trireme::parallel {

// As in linear_cross_entropy(), a chunk's products, losses and gradients follow each other, and the
// gradient is computed in forward. The teacher is a function that gives the divergence of a chunk's
// rows from it.

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Of the rows from `start` on.
using DivergenceOfRows = std::function<RowsLoss(const StudentRows& student, int64_t start)>;

struct DistillationCall : torch::CustomClassHolder {
  DistillationOptions options;
  double student_cap = 0;
  DivergenceOfRows divergence_from_teacher;
  int64_t chunk = 1;
  at::Tensor targets_S;
  at::ScalarType wide{};
  at::ScalarType factors{};  // the student's; see CrossEntropyCall
  bool has_ignored = true;
  bool wants_x = false;
  bool wants_w = false;
  bool wants_b = false;
  at::Tensor cross_entropy, divergence;  // what forward finds beside the loss

  bool wants_gradient() const { return wants_x || wants_w || wants_b; }
};

// Adds up the losses of a chunk in the call. Returns the gradient for its logits, if it is wanted.
at::Tensor take_chunk(DistillationCall& call, const at::Tensor& student_Cv, int64_t start) {
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
  const RowsLoss divergence = call.divergence_from_teacher(
      {.logits_Cv = student_Cv, .temperature = temperature, .wants_gradient = wants_gradient},
      start);
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
    const int64_t S = call->targets_S.numel(), v = weight_vD.size(0);
    const at::Tensor x_SD = gather_rows(x, S, axis).wait().to(call->factors);
    const ProductFactor w = weight_vD.to(call->factors);
    const auto wide = x_SD.options().dtype(call->wide);
    const int64_t chunk = call->chunk;
    const at::Tensor student_Cv = at::empty({chunk, v}, wide);
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
      const at::Tensor found_Cv = take_chunk(*call, logits_Cv, start);
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

int64_t chunk_of(const LinearHead& student, const at::Tensor& targets_BT,
                 const DistillationOptions& options) {
  return chunk_rows(options.chunk_tokens, targets_BT.numel(), student.w_vD.size(0),
                    targets_BT.device());
}

DistillationLoss distil(const LinearHead& student, DivergenceOfRows divergence,
                        const at::Tensor& targets_BT, const DistillationOptions& options) {
  TRIREME_ASSERT(options.temperature > 0 && options.weight >= 0 && options.weight <= 1,
                 "temperature ", options.temperature, " and weight ", options.weight);
  auto call = c10::make_intrusive<DistillationCall>();
  call->options = options;
  call->student_cap = student.softcap;
  call->divergence_from_teacher = std::move(divergence);
  call->targets_S = targets_BT.reshape({-1}).contiguous();
  call->chunk = chunk_of(student, targets_BT, options);
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

}  // namespace

DistillationLoss linear_distillation(const LinearHead& student, const LinearHead& teacher,
                                     const at::Tensor& targets_BT,
                                     const DistillationOptions& options) {
  TRIREME_ASSERT(student.w_vD.size(0) == teacher.w_vD.size(0), "a student's ", student.w_vD.size(0),
                 " rows of the vocabulary beside a teacher's ", teacher.w_vD.size(0));
  const at::ScalarType wide = at::promote_types(student.x.scalar_type(), at::kFloat);
  FrozenLogits logits(teacher, targets_BT.numel(), chunk_of(student, targets_BT, options),
                      options.axis);
  const auto divergence = [&](const StudentRows& rows, int64_t start) {
    const at::Tensor teacher_Cv = logits.rows(start, rows.logits_Cv.size(0));
    return divergence_from_logits(rows, teacher_Cv.to(wide), options.axis);
  };
  return distil(student, divergence, targets_BT, options);
}

DistillationLoss linear_distillation(const LinearHead& student, const TopOutputs& teacher,
                                     const at::Tensor& targets_BT,
                                     const DistillationOptions& options) {
  const int64_t S = targets_BT.numel(), k = teacher.tokens_Sk.size(-1);
  TRIREME_ASSERT(teacher.tokens_Sk.numel() == S * k && teacher.log_p_Sk.numel() == S * k &&
                     teacher.log_rest_S.numel() == S,
                 "outputs of shapes ", teacher.tokens_Sk.sizes(), ", ", teacher.log_p_Sk.sizes(),
                 " and ", teacher.log_rest_S.sizes(), " for ", S, " tokens");
  const TopOutputs all{.tokens_Sk = teacher.tokens_Sk.reshape({S, k}),
                       .log_p_Sk = teacher.log_p_Sk.reshape({S, k}),
                       .log_rest_S = teacher.log_rest_S.reshape({S})};
  const auto divergence = [&](const StudentRows& rows, int64_t start) {
    const int64_t C = rows.logits_Cv.size(0);
    return divergence_from_top(rows,
                               {.tokens_Sk = all.tokens_Sk.narrow(0, start, C),
                                .log_p_Sk = all.log_p_Sk.narrow(0, start, C),
                                .log_rest_S = all.log_rest_S.narrow(0, start, C)},
                               options.first_row, options.axis);
  };
  return distil(student, divergence, targets_BT, options);
}

}  // namespace trireme::parallel
