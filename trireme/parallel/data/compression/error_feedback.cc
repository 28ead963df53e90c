#include "trireme/parallel/data/compression/error_feedback.h"

#include <ATen/ATen.h>

#include "trireme/parallel/data/compression/wire.h"

namespace trireme::parallel {

void ErrorFeedback::add_gradient(const GradientSpec& gradient) {
  residuals_[gradient.name] =
      at::zeros(gradient.shape, gradient.options.dtype(compute_dtype(gradient.options)));
}

at::Tensor ErrorFeedback::corrected(const std::string& name, const at::Tensor& gradient) const {
  return residuals_.at(name) + gradient;
}

void ErrorFeedback::keep(const std::string& name, const at::Tensor& residual) {
  at::nan_to_num_out(residuals_.at(name), residual, 0, 0, 0);
}

std::vector<HookState> ErrorFeedback::state() const {
  std::vector<HookState> result;
  for (const auto& [name, residual] : residuals_) result.push_back({"error." + name, residual});
  return result;
}

}  // namespace trireme::parallel
