#include "trireme/parallel/pipeline/run/deferred_work.h"

#include <ATen/ops/add.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/base/error.h"

namespace trireme::parallel {

bool DeferredWork::defer(const at::Tensor& leaf, GradientFunction gradient) {
  if (!is_recording_) return false;
  items_[current_].push_back({leaf, std::move(gradient)});
  return true;
}

void DeferredWork::begin(const Key& key) {
  TRIREME_ASSERT(!is_recording_, "two input parts at once");
  current_ = key;
  is_recording_ = true;
}

void DeferredWork::clear() {
  is_recording_ = false;
  items_.clear();
}

void DeferredWork::run(const Key& key) {
  const auto found = items_.find(key);
  if (found == items_.end()) return;
  std::vector<Item> items = std::move(found->second);
  items_.erase(found);
  struct Sum {
    int uses_left = 0;
    at::Tensor gradient;
  };
  std::map<const void*, Sum> sums;
  for (const Item& item : items) ++sums[item.leaf.unsafeGetTensorImpl()].uses_left;
  const c10::NoGradGuard no_grad;
  for (Item& item : items) {
    Sum& sum = sums[item.leaf.unsafeGetTensorImpl()];
    at::Tensor gradient = item.gradient();
    item.gradient = nullptr;  // and everything it keeps alive
    sum.gradient = sum.gradient.defined() ? at::add(sum.gradient, gradient) : std::move(gradient);
    if (--sum.uses_left == 0) accumulate_gradient(item.leaf, std::move(sum.gradient));
  }
}

void accumulate_gradient(const at::Tensor& leaf, at::Tensor gradient) {
  TRIREME_ASSERT(leaf.is_leaf() && leaf.requires_grad(), "a gradient for a tensor that has none");
  const c10::NoGradGuard no_grad;
  const auto accumulate = torch::autograd::impl::grad_accumulator(leaf);
  torch::autograd::variable_list gradients;
  gradients.push_back(std::move(gradient));
  (*accumulate)(std::move(gradients));
}

}  // namespace trireme::parallel
