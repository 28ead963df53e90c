// What a learner gives to one that comes later, and takes from others when it comes.
#include <cstddef>
#include <span>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/train/learner/flat_weights.h"
#include "trireme/train/learner/learner_state.h"

namespace trireme::train {

at::Tensor LearnerState::common() const {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  for (const Weight& weight : weights_) tensors.push_back(weight.anchor);
  for (const Weight& weight : weights_) {
    if (weight.momentum.defined()) tensors.push_back(weight.momentum);
  }
  return flattened(tensors, wide_options()).cpu().contiguous();
}

std::string LearnerState::common_hash() const {
  const c10::NoGradGuard no_grad;
  std::string hashes;
  const auto add = [&](const at::Tensor& tensor) {
    const at::Tensor values = tensor.cpu().contiguous();
    hashes += checksum(std::span(static_cast<const std::byte*>(values.const_data_ptr()),
                                 static_cast<size_t>(values.nbytes())));
  };
  for (const Weight& weight : weights_) {
    add(weight.anchor);
    if (weight.momentum.defined()) add(weight.momentum);
  }
  return checksum(std::as_bytes(std::span(hashes)));
}

// The message of a round that has not taken it.
void LearnerState::keep_message() {
  if (is_lost_) return forget_late();
  for (const Weight& weight : weights_) weight.late.copy_(weighted_difference(weight));
  late_weight_ += weight_;
}

void LearnerState::forget_late() {
  if (late_weight_ == 0) return;
  for (const Weight& weight : weights_) weight.late.zero_();
  late_weight_ = 0;
}

void LearnerState::take_common(const at::Tensor& common, bool keeps_message) {
  const c10::NoGradGuard no_grad;
  if (keeps_message) {
    TRIREME_ASSERT(fragment_ && config_.outer.is_decoupled(), "no message to keep");
    keep_message();
  } else {
    forget_late();
  }
  if (fragment_) {
    for (const Group& group : groups_) {
      group.differences->abandon();
      group.exact->finish();  // of this rank alone
    }
    if (is_lost_ && config_.outer.states == OuterStates::kKeep) reset_states(*fragment_);
    fragment_.reset();
    is_lost_ = false;
  }
  TRIREME_ASSERT(common.numel() == this->common().numel(), "common weights of another size");
  int64_t begin = 0;
  for (const Weight& weight : weights_) {
    weight.anchor.copy_(take(common, weight.anchor, begin));
    set(weight, weight.anchor);
    if (weight.residual.defined() && !keeps_message) weight.residual.zero_();
  }
  for (const Weight& weight : weights_) {
    if (weight.momentum.defined()) weight.momentum.copy_(take(common, weight.momentum, begin));
  }
}

}  // namespace trireme::train
