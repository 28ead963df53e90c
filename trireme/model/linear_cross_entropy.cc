#include "trireme/model/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/model/simd.h"

namespace trireme::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A row of logits becomes its gradient softmax - onehot(target); returns the row's loss.
template <typename scalar>
TRIREME_INLINE double softmax_body(scalar* logits, int64_t vocab, int64_t target) {
  const scalar top = internal::lane_max(vocab, logits);
  const scalar of_target = logits[target] - top;
#pragma GCC ivdep
  for (int64_t v = 0; v < vocab; ++v) logits[v] = internal::fast_exp(logits[v] - top);
  const scalar sum = internal::lane_sum<scalar>(vocab, [&](int64_t v) { return logits[v]; });
  const scalar inverse = scalar{1} / sum;
#pragma GCC ivdep
  for (int64_t v = 0; v < vocab; ++v) logits[v] *= inverse;
  logits[target] -= scalar{1};
  return std::log(static_cast<double>(sum)) - static_cast<double>(of_target);
}

TRIREME_MULTIVERSION double softmax_row(float* logits, int64_t vocab, int64_t target) {
  return softmax_body(logits, vocab, target);
}
TRIREME_MULTIVERSION double softmax_row(double* logits, int64_t vocab, int64_t target) {
  return softmax_body(logits, vocab, target);
}

// Every row of logits_CV in place; losses[row] is its loss. Ignored rows become zero.
void softmax_rows(const at::Tensor& logits_CV, const int64_t* targets, double* losses) {
  const int64_t vocab = logits_CV.size(1);
  AT_DISPATCH_FLOATING_TYPES(logits_CV.scalar_type(), "linear_cross_entropy", [&] {
    auto* logits = logits_CV.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, logits_CV.size(0), 4, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        if (targets[row] == kIgnoredTarget) {
          std::fill_n(logits + row * vocab, vocab, scalar_t{0});
          losses[row] = 0;
        } else {
          losses[row] = softmax_row(logits + row * vocab, vocab, targets[row]);
        }
      }
    });
  });
}

// The same by ATen, for tensors that are not on the CPU.
double softmax_rows_composed(at::Tensor logits_CV, const at::Tensor& targets_C) {
  const at::Tensor counted = targets_C.ne(kIgnoredTarget);
  const at::Tensor column_C1 = targets_C.clamp_min(0).unsqueeze(1);
  const at::Tensor log_CV = at::log_softmax(logits_CV, 1);
  const at::Tensor loss_C = -log_CV.gather(1, column_C1).squeeze(1) * counted;
  logits_CV.copy_(log_CV.exp());
  logits_CV.scatter_add_(1, column_C1, at::full_like(column_C1, -1, logits_CV.options()));
  logits_CV.mul_(counted.unsqueeze(1));
  return loss_C.sum(at::kDouble).item<double>();
}

class LinearCrossEntropyFunction : public torch::autograd::Function<LinearCrossEntropyFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_SD, const at::Tensor& w_VD,
                            const at::Tensor& targets_S, int64_t chunk_tokens, bool wants_x,
                            bool wants_w) {
    const int64_t S = x_SD.size(0);
    const int64_t chunk = std::max<int64_t>(1, std::min(chunk_tokens, S));
    const at::Tensor buffer_CV = at::empty({chunk, w_VD.size(0)}, x_SD.options());
    const at::Tensor grad_x_SD = wants_x ? at::empty_like(x_SD) : at::Tensor();
    at::Tensor grad_w_VD = wants_w ? at::empty_like(w_VD) : at::Tensor();
    if (wants_w && S == 0) grad_w_VD.zero_();
    std::vector<double> losses(static_cast<size_t>(chunk));
    double sum = 0;
    for (int64_t start = 0; start < S; start += chunk) {
      const int64_t C = std::min(chunk, S - start);
      const at::Tensor x_CD = x_SD.narrow(0, start, C);
      const at::Tensor targets_C = targets_S.narrow(0, start, C);
      at::Tensor logits_CV = buffer_CV.narrow(0, 0, C);
      at::mm_out(logits_CV, x_CD, w_VD.t());
      if (x_SD.is_cpu()) {
        softmax_rows(logits_CV, targets_C.const_data_ptr<int64_t>(), losses.data());
        for (int64_t row = 0; row < C; ++row) sum += losses[static_cast<size_t>(row)];
      } else {
        sum += softmax_rows_composed(logits_CV, targets_C);
      }
      if (wants_x) {
        at::Tensor grad_x_CD = grad_x_SD.narrow(0, start, C);
        at::mm_out(grad_x_CD, logits_CV, w_VD);
      }
      if (wants_w) {
        // beta = 0 on the first chunk: what the memory held before is not read.
        grad_w_VD.addmm_(logits_CV.t(), x_CD, start == 0 ? 0 : 1);
      }
    }
    if (wants_x) ctx->saved_data["grad_x"] = grad_x_SD;
    if (wants_w) ctx->saved_data["grad_w"] = grad_w_VD;
    return at::scalar_tensor(sum, x_SD.options().dtype(at::kDouble));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list result(6);
    TRIREME_ASSERT(!ctx->saved_data.empty(),
                   "linear_cross_entropy's backward runs once: its gradients were handed out");
    const double scale = grads[0].item<double>();
    const char* const names[] = {"grad_x", "grad_w"};
    for (size_t i = 0; i < 2; ++i) {
      const auto found = ctx->saved_data.find(names[i]);
      if (found == ctx->saved_data.end()) continue;
      result[i] = found->second.toTensor();
      if (scale != 1.0) result[i].mul_(scale);
    }
    // Nobody else holds the gradients now, so autograd takes them over without a copy.
    ctx->saved_data.clear();
    return result;
  }
};

}  // namespace

Loss linear_cross_entropy(const at::Tensor& x_BTD, const at::Tensor& w_VD,
                          const at::Tensor& targets_BT, CrossEntropyOptions options) {
  TRIREME_ASSERT(options.chunk_tokens > 0, "chunk of ", options.chunk_tokens, " tokens");
  TRIREME_ASSERT(targets_BT.numel() * w_VD.size(1) == x_BTD.numel(),
                 "targets do not match hidden states");
  const at::Tensor targets_S = targets_BT.reshape({-1}).contiguous();
  const at::Tensor host_S = targets_S.cpu();
  Loss loss;
  const int64_t* targets = host_S.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < host_S.numel(); ++i) {
    if (targets[i] == kIgnoredTarget) continue;
    TRIREME_CHECK(targets[i] >= 0 && targets[i] < w_VD.size(0), "target ", targets[i],
                  " at position ", i, " is outside the vocabulary; expected 0 to ",
                  w_VD.size(0) - 1, " or ", kIgnoredTarget,
                  ": prepare the data with this model's tokenizer or raise model.vocab_size");
    ++loss.count;
  }
  // Sums over V and over chunks need fp32 at least.
  const at::ScalarType wide = at::promote_types(x_BTD.scalar_type(), at::kFloat);
  const at::Tensor x_SD = x_BTD.reshape({-1, w_VD.size(1)}).to(wide).contiguous();
  const at::Tensor w_wide = w_VD.to(wide);
  const bool records = at::GradMode::is_enabled();
  loss.sum = LinearCrossEntropyFunction::apply(x_SD, w_wide, targets_S, options.chunk_tokens,
                                               records && x_SD.requires_grad(),
                                               records && w_wide.requires_grad());
  return loss;
}

}  // namespace trireme::model
