// Sends each gradient matrix as the product of two thin ones, refined by one power iteration per
// step.
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

// A gradient of shape [R, ...] is the matrix [R, C]. With M = gradient + residual on each rank: P =
// sum M Q, orthonormalised; Q = sum M^T P. Every rank gets P Q^T, the sum of all M projected on P's
// columns, and keeps its own M - P P^T M. The next step starts with this Q (warm start). Vectors,
// and matrices that two thin ones would not shrink (r (R + C) >= R C), are sent unchanged. A Q that
// is not finite, after a step that was not, is drawn again.
// State:  error.<parameter> [shape], this rank's; q.<parameter> [C, r], the same on all.
// Source: Vogels et al. 2019, arXiv:1905.13727 (PowerSGD), algorithms 1 and 2. P is orthonormalised
//         by Householder QR, which gives orthonormal columns whatever P's rank.
class PowerSgdHook : public GradientHook {
 public:
  // Throws: ConfigError when the rank is less than 1
  explicit PowerSgdHook(const PowerSgdOptions& options = {});

  void prepare(std::span<const GradientSpec> gradients) override;
  // Comm: 2(p-1)/p * n bytes for what is sent unchanged, in the gradient's dtype, and for r (R + C)
  //       elements per matrix, in fp32 or in the gradient's dtype if that is more precise
  int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) override;
  std::vector<HookState> state() const override;

 private:
  void start(const std::string& name, const at::Tensor& q) const;

  PowerSgdOptions options_;
  ErrorFeedback feedback_;
  std::map<std::string, at::Tensor> q_;  // [C, r] of each matrix that is compressed
};

}  // namespace trireme::parallel
