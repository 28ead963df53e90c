#include "trireme/train/optimizer/adamw_pass.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/simd.h"

namespace trireme::train {
namespace {

constexpr int64_t kGrain = 1 << 15;

struct Numbers {
  float gradient_factor, new_average, decay1, kept_square, new_square, step, root_scale, epsilon;
};

TRIREME_INLINE float next_weight(const Numbers& by, float gradient, float weight,
                                 float* __restrict average, float* __restrict square) {
  *average += (gradient - *average) * by.new_average;
  *square = *square * by.kept_square + gradient * gradient * by.new_square;
  return weight * by.decay1 -
         *average * by.step / (std::sqrt(*square) * by.root_scale + by.epsilon);
}

TRIREME_MULTIVERSION void pass(const Numbers& by, const uint16_t* __restrict gradients,
                               float* __restrict weights, float* __restrict averages,
                               float* __restrict squares, uint16_t* __restrict rounded,
                               int64_t count) {
  if (rounded == nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      const float gradient = widen(gradients[i]) * by.gradient_factor;
      weights[i] = next_weight(by, gradient, weights[i], &averages[i], &squares[i]);
    }
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = widen(gradients[i]) * by.gradient_factor;
    const float weight = next_weight(by, gradient, weights[i], &averages[i], &squares[i]);
    weights[i] = weight;
    rounded[i] = narrow<uint16_t>(weight);
  }
}

}  // namespace

bool has_adamw_pass(const UpdateItem& item) {
  const bool rounds_otherwise =
      item.rounded.defined() && item.rounded.scalar_type() != at::kBFloat16;
  return item.weights.is_cpu() && item.weights.scalar_type() == at::kFloat &&
         item.gradient.scalar_type() == at::kBFloat16 && !rounds_otherwise;
}

// weights = (1 - rate * decay) weights - rate / c1 * exp_avg / (sqrt(exp_avg_sq / c2) + epsilon),
// with c1 and c2 the bias corrections 1 - beta^step.
void adamw_pass(const UpdateItem& item, const AdamWStep& step) {
  TRIREME_ASSERT(item.state.size() == 2, item.state.size(), " states");
  const auto power = static_cast<double>(step.step);
  const double correction1 = 1 - std::pow(step.beta1, power);
  const double correction2 = 1 - std::pow(step.beta2, power);
  const Numbers by{.gradient_factor = static_cast<float>(item.gradient_factor),
                   .new_average = static_cast<float>(1 - step.beta1),
                   .decay1 = static_cast<float>(1 - step.rate * item.weight_decay),
                   .kept_square = static_cast<float>(step.beta2),
                   .new_square = static_cast<float>(1 - step.beta2),
                   .step = static_cast<float>(step.rate / correction1),
                   .root_scale = static_cast<float>(1 / std::sqrt(correction2)),
                   .epsilon = static_cast<float>(step.epsilon)};
  const auto* gradients = stored_in<at::BFloat16>(item.gradient);
  auto* weights = item.weights.mutable_data_ptr<float>();
  auto* averages = item.state[0].mutable_data_ptr<float>();
  auto* squares = item.state[1].mutable_data_ptr<float>();
  auto* rounded = item.rounded.defined() ? stored_out<at::BFloat16>(item.rounded) : nullptr;
  at::parallel_for(0, item.weights.numel(), kGrain, [&](int64_t begin, int64_t end) {
    pass(by, gradients + begin, weights + begin, averages + begin, squares + begin,
         rounded == nullptr ? nullptr : rounded + begin, end - begin);
  });
}

}  // namespace trireme::train
