#include "trireme/cli/plan/layer_kernels.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/clock.h"
#include "trireme/base/machine/matrix_product.h"
#include "trireme/model/layers/attention.h"
#include "trireme/model/layers/feed_forward.h"
#include "trireme/model/layers/norm.h"
#include "trireme/parallel/tensor/linear_cross_entropy.h"
#include "trireme/plan/cost/device_seconds.h"
#include "trireme/train/numerics/gradient_norm.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::cli {
namespace {

constexpr double kTurnSeconds = 0.5;  // seconds

// Matrices that are used in turn, together more than a core's cache.
std::vector<at::Tensor> in_turn(int64_t rows, int64_t columns, c10::ScalarType dtype, double value,
                                int64_t count) {
  return at::full({count, rows, columns}, value, dtype).unbind();
}

double number(int64_t n) { return static_cast<double>(n); }

// Matrices of a layer's products that are used in turn.
struct LayerMatrices {
  std::vector<at::Tensor> x, w, y, grad_x, grad_w;

  LayerMatrices(int64_t rows, int64_t n, c10::ScalarType dtype, int64_t count)
      : x(in_turn(rows, n, dtype, 0.5, count)),
        w(in_turn(n, n, dtype, 0.25, count)),
        y(in_turn(rows, n, dtype, 0, count)),
        grad_x(in_turn(rows, n, dtype, 0, count)),
        grad_w(in_turn(n, n, dtype, 0, count)) {}

  // In bf16 the three products of a layer take unequal times: its output, and both gradients. In a
  // step a layer's backward finds its gradient in a cache, and no longer its input and weight.
  void multiply(size_t turn) {
    const size_t earlier = (turn + x.size() / 2) % x.size();
    at::mm_out(y[turn], x[turn], w[turn].t());
    at::mm_out(grad_x[turn], y[turn], w[earlier]);
    weight_product_out(grad_w[turn], y[turn], x[earlier]);
  }
};

// Calls multiply() for as many turns as there is time for; the seconds of a turn.
template <typename Multiply>
double seconds_of_turn(const TimeCall& time, int64_t count, const Multiply& multiply) {
  multiply(0);
  const auto start = std::chrono::steady_clock::now();
  multiply(1);
  // Without bf16 instructions one takes long.
  const double affordable = std::max(1.0, kTurnSeconds / std::max(seconds_since(start), 1e-9));
  const auto num = static_cast<size_t>(std::min(affordable, number(count)));
  return time([&] {
           for (size_t i = 0; i < num; ++i) multiply(i);
         }) /
         static_cast<double>(num);
}

}  // namespace

double Products::flops() const { return 2 * number(rows > 0 ? rows : n) * number(n) * number(n); }

double Products::seconds(const TimeCall& time) const {
  const c10::NoGradGuard no_grad;
  constexpr int64_t kBytes = 96 << 20, kMost = 512;
  const auto count_of = [&](int64_t elements) {
    return std::clamp<int64_t>(kBytes / (elements * static_cast<int64_t>(c10::elementSize(dtype))),
                               2, kMost);
  };
  if (rows > 0) {
    const int64_t count = count_of((3 * rows + 2 * n) * n);
    LayerMatrices layer(rows, n, dtype, count);
    return seconds_of_turn(time, count, [&](size_t turn) { layer.multiply(turn); }) / 3;
  }
  const int64_t count = count_of(3 * n * n);
  const std::vector<at::Tensor> x = in_turn(n, n, dtype, 0.5, count),
                                w = in_turn(n, n, dtype, 0.25, count);
  std::vector<at::Tensor> y = in_turn(n, n, dtype, 0, count);
  return seconds_of_turn(time, count, [&](size_t turn) { at::mm_out(y[turn], x[turn], w[turn]); });
}

namespace {

constexpr int64_t kHeads = 8, kHeadWidth = 64, kAttentionTokens = 2048;

}  // namespace

double Attention::flops_per_second(double seconds) const {
  const double forward = 0.5 * 4 * number(kAttentionTokens * tokens * kHeads * kHeadWidth);
  return forward * (1 + plan::attention_backward_factor(/*is_fused=*/true)) / seconds;
}

double Attention::seconds(const TimeCall& time) const {
  const c10::AutoGradMode with_gradients(true);
  // More than a core's cache together, as those of the layers of a model are.
  std::array<std::array<at::Tensor, 3>, 4> layers;
  for (auto& qkv : layers) {
    for (at::Tensor& x : qkv) {
      x = at::full({kAttentionTokens / tokens, tokens, kHeads * kHeadWidth}, 0.1, dtype)
              .requires_grad_();
    }
  }
  const at::Tensor ones = at::ones_like(layers[0][0]);
  size_t turn = 0;
  return time([&] {
    const auto& [q, k, v] = layers[turn++ % layers.size()];
    for (const at::Tensor& x : {q, k, v}) x.mutable_grad() = at::Tensor();
    model::attention_core(q, k, v, kHeads, kHeads, {}).backward(ones);
  });
}

namespace {

constexpr int64_t kSumElements = 16 << 20;  // no cache holds them

}  // namespace

double Memory::bytes_per_second(double seconds) { return 3 * 4.0 * kSumElements / seconds; }

double Memory::seconds(const TimeCall& time) {
  const c10::NoGradGuard no_grad;
  at::Tensor a = at::ones({kSumElements});
  const at::Tensor b = at::ones({kSumElements});
  return time([&] { a.add_(b); });
}

namespace {

constexpr int64_t kRows = 2048, kWidth = 512, kHidden = 1280;

}  // namespace

// Backward is twice forward.
double Elementwise::bytes_per_second(double seconds) {
  return 3 * 2.0 * kRows * (5 * kWidth + 4 * kHidden) / seconds;
}

double Elementwise::seconds(const TimeCall& time) {
  const c10::AutoGradMode with_gradients(true);
  const auto filled = [](int64_t width) { return at::full({kRows, width}, 0.5, at::kBFloat16); };
  const at::Tensor x = filled(kWidth).requires_grad_(), of_sum = filled(kWidth);
  const at::Tensor weight = at::ones({kWidth}, at::kBFloat16).requires_grad_();
  const at::Tensor gate = filled(kHidden).requires_grad_(), of_hidden = filled(kHidden);
  const at::Tensor up = filled(kHidden).requires_grad_();
  // SwiGLU writes its gradients over its inputs.
  const auto fill = [&] {
    for (const at::Tensor& input : {gate, up}) input.detach().fill_(0.5);
  };
  const double filling = time(fill);
  const double all = time([&] {
    for (const at::Tensor& leaf : {x, weight, gate, up}) leaf.mutable_grad() = at::Tensor();
    fill();
    const auto [residual, y] = model::rms_norm_branch(x, weight, 1e-5);
    (residual + y).backward(of_sum);
    model::swiglu(gate.view_as(gate), up.view_as(up)).backward(of_hidden);
  });
  return std::max(all - filling, all / 2);
}

namespace {

constexpr int64_t kVocabulary = 8192, kTargets = 512;

}  // namespace

double Head::flops() const { return 3 * 2 * number(kTargets * kVocabulary * width); }

double Head::bytes_of_loss() { return 4 * 4.0 * kTargets * kVocabulary; }

double Head::seconds(const TimeCall& time) const {
  const c10::AutoGradMode with_gradients(true);
  const at::Tensor x = at::full({kTargets, width}, 0.01, dtype).requires_grad_();
  const at::Tensor weight = at::full({kVocabulary, width}, 0.01, dtype).requires_grad_();
  const at::Tensor targets = at::zeros({kTargets}, at::kLong);
  return time([&] {
    for (const at::Tensor& leaf : {x, weight}) leaf.mutable_grad() = at::Tensor();
    parallel::linear_cross_entropy(x, weight, targets, {}).sum.backward();
  });
}

namespace {

constexpr int64_t kUpdated = 4 << 20;

}  // namespace

// Two reads of the gradient; weights, both states and in bf16 the master are read and written.
double Update::bytes_per_second(double seconds) const {
  const double item = number(static_cast<int64_t>(c10::elementSize(dtype)));
  const double kept = 2 * 4 + (dtype == at::kFloat ? 0 : 4);
  return (4 * item + 2 * kept) * kUpdated / seconds;
}

double Update::seconds(const TimeCall& time) const {
  const c10::NoGradGuard no_grad;
  const auto numbers = [](double value, c10::ScalarType as) {
    return at::full({kUpdated}, value, as);
  };
  train::UpdateItem item{.weights = numbers(0.1, at::kFloat),
                         .gradient = numbers(1e-3, dtype),
                         .state = {numbers(0, at::kFloat), numbers(0, at::kFloat)},
                         .weight_decay = 0.1,
                         .gradient_factor = 0.5};  // of clipping
  if (dtype != at::kFloat) item.rounded = numbers(0.1, dtype);
  const std::array<train::UpdateItem, 1> items{item};
  const auto rule = train::make_update_rule({.name = "adamw"});
  int64_t step = 0;
  return time([&] {
    train::l2_norm(item.gradient);
    rule->update(items, /*learning_rate=*/1e-4, ++step);
  });
}

double launch_seconds(const TimeCall& time) {
  const c10::AutoGradMode with_gradients(true);
  constexpr int kOperations = 32;
  const at::Tensor a = at::ones({16}).requires_grad_();
  // Each has one operation forward and one backward.
  return time([&] {
           at::Tensor x = a;
           for (int i = 0; i < kOperations; ++i) x = x * 1.01;
           x.sum().backward();
         }) /
         (2 * kOperations);
}

}  // namespace trireme::cli
