// Error feedback: what a rule did not send of a gradient is added to the next one, so that nothing
// is lost for good. One residual a parameter, this rank's alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::parallel {

// Residuals are in the dtype that hooks compute in (wire.h): 4 bytes a parameter on every rank.
// Source: Seide et al. 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019,
//         arXiv:1901.09847
class ErrorFeedback {
 public:
  // A residual of zeros for this gradient.
  void add_gradient(const GradientSpec& gradient);

  // gradient + residual, in memory of its own; the residual is what the caller makes of it.
  at::Tensor corrected(const std::string& name, const at::Tensor& gradient) const;

  // Keeps what was not sent. What is not finite is forgotten: its step is refused, and it would
  // stay for ever.
  void keep(const std::string& name, const at::Tensor& residual);

  // "error.<parameter>".
  std::vector<HookState> state() const;

 private:
  std::map<std::string, at::Tensor> residuals_;
};

}  // namespace trireme::parallel
