// Sends only the largest elements of each gradient. The others wait in the residual.
#pragma once

#include "trireme/parallel/data/compression/error_feedback.h"
#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::parallel {

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

}  // namespace trireme::parallel
