// Length: one fused operator, whose kernels, chunks and gradients are read together.
#include "trireme/parallel/tensor/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/base/gradient_place.h"
#include "trireme/base/machine/bf16_numbers.h"
#include "trireme/base/machine/matrix_product.h"
#include "trireme/base/machine/simd.h"

namespace trireme::parallel {
namespace {

// A row's statistics: the largest logit, the sum of exp(logit - top), and the target's logit or
// this if another rank has it.
constexpr double kNoTarget = -std::numeric_limits<double>::infinity();

}  // namespace

at::Tensor gather_stats(const at::Tensor& mine_Cn, const TensorAxis& axis) {
  if (axis.size() == 1) return mine_Cn.unsqueeze(0);
  const at::Tensor all =
      empty_on(axis, {axis.size(), mine_Cn.size(0), mine_Cn.size(1)}, mine_Cn.options());
  const auto start = MovingRows::Clock::now();
  return MovingRows(axis, all, axis.group->all_gather(all.unbind(0), mine_Cn), start).wait();
}

RowsLoss loss_of_rows(const LogitRows& rows, const TensorAxis& axis,
                      std::optional<at::ScalarType> gradient) {
  const auto& [logits_Cv, targets_C, first_row, has_ignored] = rows;
  const at::Tensor local_C = targets_C - first_row;
  // Clamped, because gather needs a valid column; what it reads there is not used.
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
        // log_softmax has taken the part's own sum off, so this part counts as one.
        at::cat({top_C1, at::ones_like(top_C1), at::where(is_here_C1, logit_C1, kNoTarget)}, 1),
        axis);
    const at::Tensor whole_C = at::logsumexp(all_pC3.select(2, 0) + all_pC3.select(2, 1).log(), 0);
    loss_C = whole_C - all_pC3.select(2, 2).amax(0);
    const at::Tensor shift_C1 = (top_C1 - whole_C.unsqueeze(1)).to(logits_Cv.scalar_type());
    // From the part's softmax to that of the whole row.
    log_softmax_Cv.add_(shift_C1);
    target_C1.add_(shift_C1);
  }
  const at::Tensor ignored_C = has_ignored ? targets_C.eq(kIgnoredTarget) : at::Tensor();
  if (has_ignored) loss_C.masked_fill_(ignored_C, 0);
  RowsLoss result{.losses_C = loss_C, .sum = loss_C.sum(), .gradient_Cv = {}};
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

// The logits of a batch are the largest tensor of a model, and nothing but the loss needs them. So
// they are made in chunks: product, softmax, loss and both gradients of a chunk follow each other
// while its logits are in the cache, and only the gradients of x and w remain. The gradient is
// computed in forward for that reason, and scaled in backward by whatever comes from above; that is
// why backward can run only once. With the vocabulary split over ranks each has a part of a row.
// Three numbers per row are exchanged (the largest logit, the sum of exponentials, the target's
// logit), which is all that the loss and the gradient need. The two paths, for the CPU and for
// devices, give different bits: a device must not wait for the host in each chunk.

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRowsPerTask = 4;
// Tokens of a chunk on the CPU, whose logits stay in its caches.
constexpr int64_t kHostTokens = 256;
// Elements of a chunk on a device: products that fill it, and 256 MiB in fp32.
constexpr int64_t kDeviceLogits = int64_t{1} << 26;

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
TRIREME_INLINE void scale_body(const scalar* row, int64_t vocab, scalar factor, scalar* to) {
#pragma GCC ivdep
  for (int64_t v = 0; v < vocab; ++v) to[v] = row[v] * factor;
}

#define TRIREME_SOFTMAX_KERNELS(scalar)                                                \
  TRIREME_MULTIVERSION void exponentials(scalar* logits, int64_t vocab, double* top,   \
                                         double* sum) {                                \
    exponentials_body(logits, vocab, top, sum);                                        \
  }                                                                                    \
  TRIREME_MULTIVERSION void scale_row(const scalar* row, int64_t vocab, scalar factor, \
                                      scalar* to) {                                    \
    scale_body(row, vocab, factor, to);                                                \
  }
TRIREME_SOFTMAX_KERNELS(float)
TRIREME_SOFTMAX_KERNELS(double)
#undef TRIREME_SOFTMAX_KERNELS
void scale_row(const float* row, int64_t vocab, float factor, uint16_t* to) {
  narrow_run(row, vocab, factor, to);
}

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

  // From exponentials to softmax - onehot(target), in `gradient_Cv`, which may be the logits. Row r
  // is scaled by factors[r]; ignored rows are zero.
  // Rows are scaled once: the factor joins the other ranks' parts of the sum.
  void to_gradient(const double* factors, const at::Tensor& gradient_Cv) const {
    const int64_t vocab = logits_Cv_.size(1);
    AT_DISPATCH_FLOATING_TYPES_AND(
        at::kBFloat16, gradient_Cv.scalar_type(), "linear_cross_entropy", [&] {
          using stored = stored_t<scalar_t>;
          using wide = wide_t<stored>;
          const auto* logits = logits_Cv_.const_data_ptr<wide>();
          auto* gradient = stored_out<scalar_t>(gradient_Cv);
          at::parallel_for(0, logits_Cv_.size(0), kRowsPerTask, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
              const wide* values = logits + row * vocab;
              stored* to = gradient + row * vocab;
              // The product with w must not see its exponentials.
              if (targets_[row] == kIgnoredTarget) {
                std::fill_n(to, vocab, stored{0});
                continue;
              }
              const auto factor = static_cast<wide>(factors[row]);
              const int64_t target = local_target(row);
              const wide at_target = target >= 0 ? values[target] * factor - 1 : 0;
              scale_row(values, vocab, factor, to);
              if (target >= 0) to[target] = narrow<stored>(at_target);
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

// Returns the sum of the rows' losses. Sets each of them, and the factors for this rank's
// exponentials.
double combine(const at::Tensor& stats_pC3, int rank, const int64_t* targets, double* losses_C,
               double* factors) {
  const int64_t num_ranks = stats_pC3.size(0), C = stats_pC3.size(1);
  const auto* stats = stats_pC3.const_data_ptr<double>();
  const auto of = [&](int64_t r, int64_t row) { return stats + (r * C + row) * kNumStats; };
  double losses = 0;
  for (int64_t row = 0; row < C; ++row) {
    losses_C[row] = 0;
    if (targets[row] == kIgnoredTarget) continue;
    double top = of(0, row)[0], target = of(0, row)[2], sum = 0;
    // By all ranks in the same order, so all have the same loss.
    for (int64_t r = 1; r < num_ranks; ++r) {
      top = std::max(top, of(r, row)[0]);
      target = std::max(target, of(r, row)[2]);
    }
    // Relative to the largest, so nothing overflows.
    for (int64_t r = 0; r < num_ranks; ++r) sum += of(r, row)[1] * std::exp(of(r, row)[0] - top);
    losses_C[row] = std::log(sum) - (target - top);
    losses += losses_C[row];
    factors[row] = std::exp(of(rank, row)[0] - top) / sum;
  }
  return losses;
}

struct CrossEntropyCall : torch::CustomClassHolder {
  CrossEntropyOptions options;
  at::Tensor targets_S;       // on x's device
  at::Tensor host_targets_S;  // on the CPU
  at::ScalarType wide{};      // of logits and gradients; sums over V and chunks need fp32 at least
  at::ScalarType factors{};   // what is multiplied: wide where narrower numbers take longer
  bool has_ignored = true;
  bool wants_x = false;
  bool wants_w = false;
  bool wants_b = false;

  bool wants_gradient() const { return wants_x || wants_w || wants_b; }
};

}  // namespace

void multiply_on_device(at::Tensor out, const ProductFactor& a, const ProductFactor& b, int beta) {
  const at::ScalarType wide = out.scalar_type();
  if (a.matrix().is_cuda() && a.matrix().scalar_type() != wide) {
    if (beta == 0) {
      at::mm_out(out, a.matrix(), b.matrix(), wide);
    } else {
      out.add_(at::mm(a.matrix(), b.matrix(), wide));
    }
  } else {
    multiply_wide(out, a, b, beta);
  }
}

namespace {

class LinearCrossEntropyFunction : public torch::autograd::Function<LinearCrossEntropyFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight_vD,
                            const std::optional<at::Tensor>& bias_v,
                            const c10::intrusive_ptr<CrossEntropyCall>& call) {
    RECORD_FUNCTION("trireme::linear_cross_entropy", {});
    const TensorAxis& axis = call->options.axis;
    const int64_t S = call->targets_S.numel();
    // Rows travel as they are: other ranks may multiply in another type.
    const at::Tensor x_SD = gather_rows(x, S, axis).wait().to(call->factors);
    const ProductFactor w = weight_vD.to(call->factors);
    const at::Tensor& w_vD = w.matrix();
    const auto wide = x_SD.options().dtype(call->wide);
    // A chunk is never empty, not even without tokens.
    const int64_t chunk = std::max<int64_t>(1, std::min(chunk_tokens(*call, w_vD.size(0)), S));
    const at::Tensor buffer_Cv = at::empty({chunk, w_vD.size(0)}, wide);
    at::Tensor grad_x_SD;
    if (call->wants_x) grad_x_SD = empty_on(axis, x_SD.sizes(), wide);
    at::Tensor grad_w_vD = call->wants_w ? at::empty(w_vD.sizes(), wide) : at::Tensor();
    const at::Tensor grad_b_v = call->wants_b ? at::zeros(bias_v->sizes(), wide) : at::Tensor();
    // No chunk will write it.
    if (call->wants_w && S == 0) grad_w_vD.zero_();
    at::Tensor sum = at::zeros({}, wide.dtype(at::kDouble));
    const auto for_each_chunk = [&](const auto& use) {
      for (int64_t start = 0; start < S; start += chunk) {
        const int64_t C = std::min(chunk, S - start);
        const ProductFactor x_CD = x_SD.narrow(0, start, C);
        // The same memory for every chunk.
        const at::Tensor logits_Cv = buffer_Cv.narrow(0, 0, C);
        multiply_on_device(logits_Cv, x_CD, w.t());
        if (bias_v) logits_Cv.add_(*bias_v);
        use(logits_Cv, x_CD, start, C);
      }
    };
    LossOfTokens whole;
    if (call->options.loss) {
      const at::Tensor losses_S = at::empty({S}, sum.options());
      for_each_chunk([&](const at::Tensor& logits_Cv, const ProductFactor&, int64_t start,
                         int64_t C) {
        losses_S.narrow(0, start, C).copy_(loss_of_chunk(*call, logits_Cv, start, false).losses_C);
      });
      whole = call->options.loss(losses_S);
    }
    const auto add = [&](const at::Tensor& logits_Cv, const ProductFactor& x_CD, int64_t start,
                         int64_t C) {
      const at::Tensor slopes_C =
          whole.slopes_S.defined() ? whole.slopes_S.narrow(0, start, C) : whole.slopes_S;
      const RowsLoss loss =
          loss_of_chunk(*call, logits_Cv, start, call->wants_gradient(), slopes_C);
      sum.add_(loss.sum);
      if (call->wants_b) grad_b_v.add_(loss.gradient_Cv.sum(0, false, call->wide));
      if (!call->wants_x && !call->wants_w) return;
      const ProductFactor gradient_Cv = loss.gradient_Cv;
      if (call->wants_x) multiply_on_device(grad_x_SD.narrow(0, start, C), gradient_Cv, w);
      if (call->wants_w) multiply_on_device(grad_w_vD, gradient_Cv.t(), x_CD, start == 0 ? 0 : 1);
    };
    if (!whole.value.defined() || call->wants_gradient()) for_each_chunk(add);
    if (whole.value.defined()) sum = whole.value;
    // After all chunks: one sum over ranks and not one for each.
    if (call->wants_x) ctx->saved_data["grad_x"] = sum_rows(grad_x_SD, axis).wait().view(x.sizes());
    if (call->wants_w) {
      ctx->saved_data["grad_w"] = grad_w_vD;
      if (weight_vD.is_leaf()) ctx->saved_data["weight"] = weight_vD;  // others have no place
    }
    if (call->wants_b) {
      ctx->saved_data["grad_b"] = grad_b_v;
      ctx->saved_data["grad_b_dtype"] = bias_v->scalar_type();
    }
    ctx->saved_data["grad_x_dtype"] = x.scalar_type();
    ctx->saved_data["grad_w_dtype"] = weight_vD.scalar_type();
    return sum;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list result(4);
    TRIREME_ASSERT(!ctx->saved_data.empty(),
                   "linear_cross_entropy's backward runs once: its gradients were handed out");
    const std::string names[] = {"grad_x", "grad_w", "grad_b"};
    for (size_t i = 0; i < std::size(names); ++i) {
      const auto found = ctx->saved_data.find(names[i]);
      if (found == ctx->saved_data.end()) continue;
      const at::Tensor grad = found->second.toTensor();
      const auto dtype = ctx->saved_data[names[i] + "_dtype"].toScalarType();
      const bool narrows = grad.is_cpu() && dtype == at::kBFloat16 && grad.is_contiguous();
      const auto weight = ctx->saved_data.find("weight");
      if (i == 1 && weight != ctx->saved_data.end() && (narrows || grad.scalar_type() == dtype))
        result[i] = gradient_place(weight->second.toTensor());
      if (narrows) {
        if (!result[i].defined()) result[i] = at::empty(grad.sizes(), grad.options().dtype(dtype));
        narrow_into(result[i], grad, grads[0].item<double>());
        continue;
      }
      const at::Tensor factor = grads[0].to(grad.scalar_type());
      if (result[i].defined()) {
        at::mul_out(result[i], grad, factor);
      } else {
        result[i] = grad.mul_(factor).to(dtype);
      }
    }
    // No other reference is left, so autograd takes the gradients over without a copy.
    // A second backward would find scaled gradients.
    ctx->saved_data.clear();
    return result;
  }

 private:
  static int64_t chunk_tokens(const CrossEntropyCall& call, int64_t vocab) {
    if (call.options.chunk_tokens > 0) return call.options.chunk_tokens;
    return call.targets_S.is_cpu() ? kHostTokens : kDeviceLogits / std::max<int64_t>(1, vocab);
  }

  // Loss of the chunk of rows that begins at `start`, and its gradient if it has a type. On the CPU
  // the gradient overwrites the logits if it has theirs.
  static RowsLoss loss_and_gradient(const CrossEntropyCall& call, const at::Tensor& logits_Cv,
                                    int64_t start, std::optional<at::ScalarType> dtype) {
    const int64_t C = logits_Cv.size(0), first_row = call.options.first_row;
    if (!logits_Cv.is_cpu()) {
      return loss_of_rows({.logits_Cv = logits_Cv,
                           .targets_C = call.targets_S.narrow(0, start, C),
                           .first_row = first_row,
                           .has_ignored = call.has_ignored},
                          call.options.axis, dtype);
    }
    const int64_t* targets = call.host_targets_S.const_data_ptr<int64_t>() + start;
    Softmax softmax(logits_Cv, targets, first_row);
    const at::Tensor stats_C3 = at::empty({C, kNumStats}, at::kDouble);
    softmax.exponentiate(stats_C3.mutable_data_ptr<double>());
    const at::Tensor all_pC3 = gather_stats(stats_C3, call.options.axis);
    std::vector<double> factors(static_cast<size_t>(C));
    const at::Tensor losses_C = at::empty({C}, at::kDouble);
    const double loss = combine(all_pC3, call.options.axis.rank(), targets,
                                losses_C.mutable_data_ptr<double>(), factors.data());
    at::Tensor gradient_Cv;
    if (dtype) {
      gradient_Cv = *dtype == logits_Cv.scalar_type()
                        ? logits_Cv
                        : at::empty(logits_Cv.sizes(), logits_Cv.options().dtype(*dtype));
      softmax.to_gradient(factors.data(), gradient_Cv);
    }
    return {losses_C, at::scalar_tensor(loss, at::kDouble), gradient_Cv};
  }

  // The same of logits that are capped first, if they are: d/dz c tanh(z / c) = 1 - tanh(z / c)^2.
  // Rows of the gradient are multiplied by slopes_C, if it is defined.
  static RowsLoss loss_of_chunk(const CrossEntropyCall& call, const at::Tensor& logits_Cv,
                                int64_t start, bool wants_gradient,
                                const at::Tensor& slopes_C = {}) {
    at::Tensor slope_Cv;
    if (call.options.softcap > 0) {
      logits_Cv.div_(call.options.softcap).tanh_();
      if (wants_gradient) slope_Cv = logits_Cv.square().neg_().add_(1);
      logits_Cv.mul_(call.options.softcap);
    }
    if (!wants_gradient) return loss_and_gradient(call, logits_Cv, start, std::nullopt);
    const bool is_scaled = slope_Cv.defined() || slopes_C.defined();
    RowsLoss loss = loss_and_gradient(call, logits_Cv, start, is_scaled ? call.wide : call.factors);
    if (slope_Cv.defined()) loss.gradient_Cv.mul_(slope_Cv);
    if (slopes_C.defined()) loss.gradient_Cv.mul_(slopes_C.unsqueeze(1).to(call.wide));
    // Rounded after the products, and once.
    if (is_scaled) loss.gradient_Cv = loss.gradient_Cv.to(call.factors);
    return loss;
  }
};

}  // namespace

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

Loss linear_cross_entropy(const at::Tensor& x, const at::Tensor& w_vD, const at::Tensor& targets_BT,
                          const CrossEntropyOptions& options) {
  TRIREME_ASSERT(options.chunk_tokens >= 0, "chunk of ", options.chunk_tokens, " tokens");
  auto call = c10::make_intrusive<CrossEntropyCall>();
  call->options = options;
  call->targets_S = targets_BT.reshape({-1}).contiguous();
  // Counting and checking need them there, and a device would wait for each.
  call->host_targets_S = call->targets_S.cpu();
  Loss loss;
  loss.count = count_targets(call->host_targets_S,
                             options.vocab_size > 0 ? options.vocab_size : w_vD.size(0));
  call->has_ignored = loss.count < call->targets_S.numel();
  call->wide = at::promote_types(x.scalar_type(), at::kFloat);
  const bool widens = x.is_cpu() && !multiplies_narrow(x);
  call->factors = widens ? call->wide : x.scalar_type();
  const at::Tensor x_sD = view_rows(x).contiguous();
  const at::Tensor w = widens ? w_vD : w_vD.to(x.scalar_type());
  const bool records = at::GradMode::is_enabled();
  call->wants_x = records && x_sD.requires_grad();
  call->wants_w = records && w.requires_grad();
  call->wants_b = records && options.bias_v.defined() && options.bias_v.requires_grad();
  const auto bias_v = options.bias_v.defined() ? std::optional(options.bias_v) : std::nullopt;
  loss.sum = LinearCrossEntropyFunction::apply(x_sD, w, bias_v, call);
  return loss;
}

}  // namespace trireme::parallel
