// Error feedback: the part of a gradient that was not sent is added to the next one, so nothing is
// lost for good. Each rank has its own residual per parameter.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::parallel {

// Residuals have the dtype that hooks compute in (wire.h): 4 bytes per parameter on every rank.
// Source: Seide et al. 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019,
//         arXiv:1901.09847
class ErrorFeedback {
 public:
  // Adds a zero residual for this gradient.
  void add_gradient(const GradientSpec& gradient);

  // gradient + residual, in new memory. The caller must update the residual with keep().
  at::Tensor corrected(const std::string& name, const at::Tensor& gradient) const;

  // Keeps what was not sent. Values that are not finite are dropped: their step is refused, and
  // they would stay forever.
  void keep(const std::string& name, const at::Tensor& residual);

  // "error.<parameter>".
  std::vector<HookState> state() const;

 private:
  std::map<std::string, at::Tensor> residuals_;
};

}  // namespace trireme::parallel
