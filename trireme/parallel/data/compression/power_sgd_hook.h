// Each gradient matrix as the product of two thin ones, by one step of power iteration a step.
#pragma once

#include <map>
#include <string>

#include "trireme/parallel/data/compression/error_feedback.h"
#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::parallel {

struct PowerSgdOptions {
  int64_t rank = 4;   // columns of the thin matrices
  uint64_t seed = 0;  // of the first Q
};

// A gradient of shape [R, ...] is the matrix [R, C]. With M = gradient + residual on each rank:
// P = sum M Q, orthonormalised; Q = sum M^T P; every rank gets P Q^T, which is the sum of all M
// projected on P's columns, and keeps M - P P^T M of its own. Q goes on to the next step (warm
// start). Vectors, and matrices for which two thin ones are no smaller (r (R + C) >= R C), are sent
// as they are. A Q that is not finite, after a step that was not, starts anew.
// State:  error.<parameter> [shape], this rank's; q.<parameter> [C, r], the same on all.
// Source: Vogels et al. 2019, arXiv:1905.13727 (PowerSGD), algorithms 1 and 2. P is orthonormalised
//         by Householder QR, which gives orthonormal columns whatever P's rank.
class PowerSgdHook : public GradientHook {
 public:
  // Throws: ConfigError when the rank is less than 1
  explicit PowerSgdHook(const PowerSgdOptions& options = {});

  void prepare(std::span<const GradientSpec> gradients) override;
  // Comm: 2(p-1)/p * n bytes of what is sent as it is, in the gradient's dtype, and of r (R + C)
  //       elements a matrix, in fp32 or the gradient's dtype where that is more precise
  int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) override;
  std::vector<HookState> state() const override;

 private:
  void start(const std::string& name, const at::Tensor& q) const;

  PowerSgdOptions options_;
  ErrorFeedback feedback_;
  std::map<std::string, at::Tensor> q_;  // [C, r] of each matrix that is compressed
};

}  // namespace trireme::parallel
