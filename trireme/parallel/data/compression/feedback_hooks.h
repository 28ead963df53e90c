// Gradient hooks that send a part of each gradient and add what is left to the next one, and the
// hook that starts them after some plain steps.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::parallel {

// Error feedback: the part of a gradient that was not sent is added to the next one, so nothing is
// lost for good. Each rank has its own residual per parameter.
// Residuals have the dtype that hooks compute in (wire.h): 4 bytes per parameter on every rank.
// Source: Seide et al. 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019,
//         arXiv:1901.09847
class ErrorFeedback {
 public:
  static constexpr const char* kResidual = "error";  // "error.<parameter>" in state()

  // Adds a zero residual for this gradient.
  void add_gradient(const GradientSpec& gradient);

  // gradient + residual, in new memory. The caller must update the residual with keep().
  at::Tensor corrected(const std::string& name, const at::Tensor& gradient) const;

  // Keeps what was not sent. Values that are not finite are dropped: their step is refused, and
  // they would stay forever.
  void keep(const std::string& name, const at::Tensor& residual);

  std::vector<HookState> state() const;

 private:
  struct Residual {
    at::Tensor value;
    int num_ranks = 1;  // of the group, for state()
    int rank = 0;
  };
  std::map<std::string, Residual> residuals_;
};

// Sends only the largest elements of each gradient. The others wait in the residual.
// For each parameter of n elements, every rank sends the ceil(ratio * n) largest elements of
// gradient + residual, with their indices. They are summed in rank order. The next step's residual
// is what was not sent, including the rounding to the gradient's dtype.
// State:  error.<parameter> [shape], this rank's.
// Source: Lin et al. 2018, arXiv:1712.01887 (Deep Gradient Compression), section 3, without its
//         momentum correction, which belongs to SGD; Stich et al. 2018, arXiv:1809.07599
class TopKHook : public GradientHook {
 public:
  // Throws: ConfigError unless 0 < ratio <= 1
  explicit TopKHook(double ratio);

  void prepare(std::span<const GradientSpec> gradients) override;
  // Comm: (p-1) * k * (4 + itemsize) bytes for k elements sent per rank; unlike the other hooks',
  //       it grows with p
  int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) override;
  std::vector<HookState> state() const override { return feedback_.state(); }

 private:
  int64_t num_sent(int64_t num_elements) const;

  double ratio_;
  ErrorFeedback feedback_;
};

struct PowerSgdOptions {
  int64_t rank = 4;   // columns of the thin matrices
  uint64_t seed = 0;  // of the first Q
};

// Sends each gradient matrix as the product of two thin ones, refined by one power iteration per
// step.
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

// Starts another hook after some plain steps. Early gradients change fast, and a residual would
// apply its part of them too late.
// The first `steps` steps are plain all-reduces in rank order, with the bits of a run without a
// hook. State: warm_up_steps_left [1] int64, the same on all ranks; then the other hook's.
class WarmUpHook : public GradientHook {
 public:
  static constexpr const char* kStepsLeft = "warm_up_steps_left";

  WarmUpHook(std::shared_ptr<GradientHook> hook, int64_t steps);

  void prepare(std::span<const GradientSpec> gradients) override { hook_->prepare(gradients); }
  void begin_step() override;
  // Comm: while warming up 2(p-1)/p * n bytes, then the other hook's
  int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) override;
  std::vector<HookState> state() const override;

 private:
  std::shared_ptr<GradientHook> hook_;
  at::Tensor steps_left_;  // [1] int64, not counting the present one
  bool is_warming_up_ = false;
};

}  // namespace trireme::parallel
