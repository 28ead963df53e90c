// The gradient before a ReLU and its transpose in one pass: oneDNN multiplies both.
#pragma once

#include <cstdint>

namespace trireme::tasks::inline internal {

// Fills in samples `begin` to `end`: `grad_out` where y > 0 or y is NaN, else 0.
// Shapes: grad_out, y [B, O] -> grad_BO [B, O], grad_OB [O, B]
struct ReluProblem {
  int64_t B = 0, O = 0;
  const float* grad_out = nullptr;
  const float* y = nullptr;
  float* grad_BO = nullptr;
  float* grad_OB = nullptr;
};
void relu_gradients(const ReluProblem& problem, int64_t begin, int64_t end);

}  // namespace trireme::tasks::inline internal
