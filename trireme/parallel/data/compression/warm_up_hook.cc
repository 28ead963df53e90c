#include "trireme/parallel/data/compression/warm_up_hook.h"

#include <utility>

#include <ATen/ATen.h>

#include "trireme/parallel/data/compression/wire.h"

namespace trireme::parallel {

WarmUpHook::WarmUpHook(std::shared_ptr<GradientHook> hook, int64_t steps)
    : hook_(std::move(hook)), steps_left_(at::full({1}, steps, at::kLong)) {}

void WarmUpHook::begin_step() {
  is_warming_up_ = steps_left_.item<int64_t>() > 0;
  if (is_warming_up_) {
    steps_left_ -= 1;
  } else {
    hook_->begin_step();
  }
}

int64_t WarmUpHook::all_reduce(const GradientBucket& bucket, comm::Communicator& group) {
  return is_warming_up_ ? counted_all_reduce(bucket.flat, group) : hook_->all_reduce(bucket, group);
}

std::vector<HookState> WarmUpHook::state() const {
  std::vector<HookState> result = hook_->state();
  result.insert(result.begin(), {kStepsLeft, steps_left_, /*same_on_ranks=*/true});
  return result;
}

}  // namespace trireme::parallel
