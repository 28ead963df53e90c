#include "trireme/parallel/tensor/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/simd.h"

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRowsPerTask = 4;

// Statistics of one rank's part of a row of logits. `target` is kNoTarget if another rank has it.
struct RowStats {
  double top = 0;     // the largest logit
  double sum = 0;     // of exp(logit - top)
  double target = 0;  // the target's logit
};
constexpr int64_t kNumStats = 3;
constexpr double kNoTarget = -std::numeric_limits<double>::infinity();

// Replaces a row of logits by exp(logit - top).
template <typename scalar>
TRIREME_INLINE void exponentials_body(scalar* logits, int64_t vocab, double* top, double* sum) {
  const scalar largest = lane_max(vocab, logits);
#pragma GCC ivdep
  for (int64_t v = 0; v < vocab; ++v) logits[v] = fast_exp(logits[v] - largest);
  *top = static_cast<double>(largest);
  *sum = static_cast<double>(lane_sum<scalar>(vocab, [&](int64_t v) { return logits[v]; }));
}
template <typename scalar>
TRIREME_INLINE void scale_body(scalar* row, int64_t vocab, scalar factor) {
#pragma GCC ivdep
  for (int64_t v = 0; v < vocab; ++v) row[v] *= factor;
}

#define TRIREME_SOFTMAX_KERNELS(scalar)                                              \
  TRIREME_MULTIVERSION void exponentials(scalar* logits, int64_t vocab, double* top, \
                                         double* sum) {                              \
    exponentials_body(logits, vocab, top, sum);                                      \
  }                                                                                  \
  TRIREME_MULTIVERSION void scale_row(scalar* row, int64_t vocab, scalar factor) {   \
    scale_body(row, vocab, factor);                                                  \
  }
TRIREME_SOFTMAX_KERNELS(float)
TRIREME_SOFTMAX_KERNELS(double)
#undef TRIREME_SOFTMAX_KERNELS

// Operations on a chunk of rows on the CPU: logits become exponentials, then the gradient. All take
// logits_Cv [C, v] and targets [C], less first_row; stats are [C, 3] fp64.
class Softmax {
 public:
  Softmax(at::Tensor logits_Cv, const int64_t* targets, int64_t first_row)
      : logits_Cv_(std::move(logits_Cv)), targets_(targets), first_row_(first_row) {}

  void exponentiate(double* stats) {
    const int64_t vocab = logits_Cv_.size(1);
    AT_DISPATCH_FLOATING_TYPES(logits_Cv_.scalar_type(), "linear_cross_entropy", [&] {
      auto* logits = logits_Cv_.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, logits_Cv_.size(0), kRowsPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          scalar_t* values = logits + row * vocab;
          double* out = stats + row * kNumStats;
          const int64_t target = local_target(row);
          out[2] = target < 0 ? kNoTarget : static_cast<double>(values[target]);
          exponentials(values, vocab, out, out + 1);
        }
      });
    });
  }

  // Replaces exponentials by softmax - onehot(target). Row r is scaled by factors[r]; ignored rows
  // are zero.
  void to_gradient(const double* factors) {
    const int64_t vocab = logits_Cv_.size(1);
    AT_DISPATCH_FLOATING_TYPES(logits_Cv_.scalar_type(), "linear_cross_entropy", [&] {
      auto* logits = logits_Cv_.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, logits_Cv_.size(0), kRowsPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          scalar_t* values = logits + row * vocab;
          if (targets_[row] == kIgnoredTarget) {
            std::fill_n(values, vocab, scalar_t{0});
            continue;
          }
          scale_row(values, vocab, static_cast<scalar_t>(factors[row]));
          if (const int64_t target = local_target(row); target >= 0) values[target] -= 1;
        }
      });
    });
  }

 private:
  // -1 when another rank has the target, or none.
  int64_t local_target(int64_t row) const {
    const int64_t target = targets_[row] - first_row_;
    const bool is_here =
        targets_[row] != kIgnoredTarget && target >= 0 && target < logits_Cv_.size(1);
    return is_here ? target : -1;
  }

  at::Tensor logits_Cv_;
  const int64_t* targets_;
  int64_t first_row_;
};

// The same with ATen, for tensors that are not on the CPU.
void exponentiate_composed(at::Tensor logits_Cv, const at::Tensor& targets_C, int64_t first_row,
                           const at::Tensor& stats_C3) {
  const at::Tensor local_C = targets_C - first_row;
  const at::Tensor is_here_C = local_C.ge(0).logical_and(local_C.lt(logits_Cv.size(1)));
  const at::Tensor column_C1 = local_C.clamp(0, logits_Cv.size(1) - 1).unsqueeze(1);
  const at::Tensor top_C1 = logits_Cv.amax(1, /*keepdim=*/true);
  const at::Tensor target_C = logits_Cv.gather(1, column_C1).squeeze(1).to(at::kDouble);
  logits_Cv.sub_(top_C1).exp_();
  stats_C3.select(1, 0).copy_(top_C1.squeeze(1));
  stats_C3.select(1, 1).copy_(logits_Cv.sum(1));
  stats_C3.select(1, 2).copy_(at::where(is_here_C, target_C, kNoTarget));
}

void to_gradient_composed(at::Tensor logits_Cv, const at::Tensor& targets_C, int64_t first_row,
                          const at::Tensor& factors_C) {
  const at::Tensor local_C = targets_C - first_row;
  const at::Tensor is_here_C = local_C.ge(0).logical_and(local_C.lt(logits_Cv.size(1)));
  const at::Tensor column_C1 = local_C.clamp(0, logits_Cv.size(1) - 1).unsqueeze(1);
  logits_Cv.mul_(factors_C.unsqueeze(1));
  logits_Cv.scatter_add_(1, column_C1, is_here_C.unsqueeze(1).to(logits_Cv.scalar_type()).neg());
  logits_Cv.masked_fill_(targets_C.eq(kIgnoredTarget).unsqueeze(1), 0);
}

// All ranks' statistics of the chunk's rows: [p, C, 3] on the CPU.
at::Tensor gather_stats(const at::Tensor& mine_C3, const TensorAxis& axis) {
  if (axis.size() == 1) return mine_C3.unsqueeze(0);
  const at::Tensor all =
      empty_on(axis, {axis.size(), mine_C3.size(0), kNumStats}, mine_C3.options());
  const auto start = MovingRows::Clock::now();
  return MovingRows(axis, all, axis.group->all_gather(all.unbind(0), mine_C3), start).wait();
}

// Returns the sum of the rows' losses. Sets the factors for this rank's exponentials.
double combine(const at::Tensor& stats_pC3, int rank, const int64_t* targets, double* factors) {
  const int64_t num_ranks = stats_pC3.size(0), C = stats_pC3.size(1);
  const auto* stats = stats_pC3.const_data_ptr<double>();
  const auto of = [&](int64_t r, int64_t row) { return stats + (r * C + row) * kNumStats; };
  double losses = 0;
  for (int64_t row = 0; row < C; ++row) {
    if (targets[row] == kIgnoredTarget) continue;
    double top = of(0, row)[0], target = of(0, row)[2], sum = 0;
    for (int64_t r = 1; r < num_ranks; ++r) {
      top = std::max(top, of(r, row)[0]);
      target = std::max(target, of(r, row)[2]);
    }
    for (int64_t r = 0; r < num_ranks; ++r) sum += of(r, row)[1] * std::exp(of(r, row)[0] - top);
    losses += std::log(sum) - (target - top);
    factors[row] = std::exp(of(rank, row)[0] - top) / sum;
  }
  return losses;
}

struct CrossEntropyCall : torch::CustomClassHolder {
  CrossEntropyOptions options;
  at::Tensor targets_S;       // on x's device
  at::Tensor host_targets_S;  // on the CPU
  bool wants_x = false;
  bool wants_w = false;
};

class LinearCrossEntropyFunction : public torch::autograd::Function<LinearCrossEntropyFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w_vD,
                            const c10::intrusive_ptr<CrossEntropyCall>& call) {
    const TensorAxis& axis = call->options.axis;
    const int64_t S = call->targets_S.numel();
    const at::Tensor x_SD = gather_rows(x, S, axis).wait();
    const int64_t chunk = std::max<int64_t>(1, std::min(call->options.chunk_tokens, S));
    const at::Tensor buffer_Cv = at::empty({chunk, w_vD.size(0)}, x_SD.options());
    at::Tensor grad_x_SD;
    if (call->wants_x) grad_x_SD = empty_on(axis, x_SD.sizes(), x_SD.options());
    at::Tensor grad_w_vD = call->wants_w ? at::empty_like(w_vD) : at::Tensor();
    if (call->wants_w && S == 0) grad_w_vD.zero_();
    double sum = 0;
    for (int64_t start = 0; start < S; start += chunk) {
      const int64_t C = std::min(chunk, S - start);
      const at::Tensor x_CD = x_SD.narrow(0, start, C);
      at::Tensor logits_Cv = buffer_Cv.narrow(0, 0, C);
      at::mm_out(logits_Cv, x_CD, w_vD.t());
      sum += loss_and_gradient(*call, logits_Cv, start);
      if (call->wants_x) {
        at::Tensor grad_x_CD = grad_x_SD.narrow(0, start, C);
        at::mm_out(grad_x_CD, logits_Cv, w_vD);
      }
      // beta = 0 on the first chunk, so the uninitialised memory is not read.
      if (call->wants_w) grad_w_vD.addmm_(logits_Cv.t(), x_CD, start == 0 ? 0 : 1);
    }
    if (call->wants_x) ctx->saved_data["grad_x"] = sum_rows(grad_x_SD, axis).wait().view(x.sizes());
    if (call->wants_w) ctx->saved_data["grad_w"] = grad_w_vD;
    return at::scalar_tensor(sum, x_SD.options().dtype(at::kDouble));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list result(3);
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
    // No other reference is left, so autograd takes the gradients over without a copy.
    ctx->saved_data.clear();
    return result;
  }

 private:
  // Returns the summed loss of the chunk of rows from `start` on. Its logits become its gradient.
  static double loss_and_gradient(const CrossEntropyCall& call, at::Tensor logits_Cv,
                                  int64_t start) {
    const int64_t C = logits_Cv.size(0), first_row = call.options.first_row;
    const int64_t* targets = call.host_targets_S.const_data_ptr<int64_t>() + start;
    const at::Tensor targets_C = call.targets_S.narrow(0, start, C);
    const bool is_host = logits_Cv.is_cpu();
    Softmax softmax(logits_Cv, targets, first_row);
    at::Tensor stats_C3 = at::empty({C, kNumStats}, logits_Cv.options().dtype(at::kDouble));
    if (is_host) {
      softmax.exponentiate(stats_C3.mutable_data_ptr<double>());
    } else {
      exponentiate_composed(logits_Cv, targets_C, first_row, stats_C3);
    }
    const at::Tensor all_pC3 = gather_stats(stats_C3, call.options.axis).cpu();
    const at::Tensor factors_C = at::zeros({C}, at::kDouble);
    auto* factors = factors_C.mutable_data_ptr<double>();
    const double loss = combine(all_pC3, call.options.axis.rank(), targets, factors);
    if (!call.wants_x && !call.wants_w) return loss;
    if (is_host) {
      softmax.to_gradient(factors);
    } else {
      to_gradient_composed(logits_Cv, targets_C, first_row, factors_C.to(logits_Cv.options()));
    }
    return loss;
  }
};

int64_t count_targets(const at::Tensor& host_S, int64_t vocab_size) {
  int64_t count = 0;
  const int64_t* targets = host_S.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < host_S.numel(); ++i) {
    if (targets[i] == kIgnoredTarget) continue;
    TRIREME_CHECK(targets[i] >= 0 && targets[i] < vocab_size, "target ", targets[i],
                  " at position ", i, " is outside the vocabulary; expected 0 to ", vocab_size - 1,
                  " or ", kIgnoredTarget,
                  ": prepare the data with this model's tokenizer or raise model.vocab_size");
    ++count;
  }
  return count;
}

}  // namespace

Loss linear_cross_entropy(const at::Tensor& x, const at::Tensor& w_vD, const at::Tensor& targets_BT,
                          const CrossEntropyOptions& options) {
  TRIREME_ASSERT(options.chunk_tokens > 0, "chunk of ", options.chunk_tokens, " tokens");
  auto call = c10::make_intrusive<CrossEntropyCall>();
  call->options = options;
  call->targets_S = targets_BT.reshape({-1}).contiguous();
  call->host_targets_S = call->targets_S.cpu();
  Loss loss;
  loss.count = count_targets(call->host_targets_S,
                             options.vocab_size > 0 ? options.vocab_size : w_vD.size(0));
  // Sums over V and over chunks need fp32 at least.
  const at::ScalarType wide = at::promote_types(x.scalar_type(), at::kFloat);
  const at::Tensor x_sD = view_rows(x).to(wide).contiguous();
  const at::Tensor w_wide = w_vD.to(wide);
  const bool records = at::GradMode::is_enabled();
  call->wants_x = records && x_sD.requires_grad();
  call->wants_w = records && w_wide.requires_grad();
  loss.sum = LinearCrossEntropyFunction::apply(x_sD, w_wide, call);
  return loss;
}

}  // namespace trireme::parallel
