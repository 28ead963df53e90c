// Starts another hook after some plain steps. Early gradients change fast, and a residual would
// apply its part of them too late.
#pragma once

#include <memory>

#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::parallel {

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
