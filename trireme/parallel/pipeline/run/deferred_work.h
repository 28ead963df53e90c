// Weight gradients that wait for a better time: while a zero-bubble schedule runs the input part of
// a backward, layers that know this class leave the gradients of their weights here.
// Source: Qi et al. 2023, arXiv:2401.10241, section 2
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

using GradientFunction = std::function<at::Tensor()>;

// A layer's backward says
//
//   if (!deferred.defer(weight, gradient)) grad_weight = gradient();
//
// and gives autograd an undefined gradient where it deferred. Every use of one weight in a stage
// defers, or none: then its gradients are added in the same order as without. What `gradient`
// captures stays in memory until it has run.
// Thread safety: the thread that runs the pipeline, and autograd's threads while they run for it.
class DeferredWork {
 public:
  using Key = std::pair<int, int64_t>;  // stage, microbatch

  // Keeps `gradient` for later and returns true while an input part runs; otherwise false.
  bool defer(const at::Tensor& leaf, GradientFunction gradient);

  // What is deferred between the two belongs to `key`.
  void begin(const Key& key);
  void end() { is_recording_ = false; }
  // Computes what `key` deferred, in the order of deferring; each leaf's gradient is summed first
  // and accumulated once, as in one backward.
  void run(const Key& key);
  bool empty() const { return items_.empty(); }
  void clear();

 private:
  struct Item {
    at::Tensor leaf;
    GradientFunction gradient;
  };
  bool is_recording_ = false;
  Key current_;
  std::map<Key, std::vector<Item>> items_;
};

// Adds `gradient` to leaf.grad() and calls the leaf's hooks, as autograd does.
void accumulate_gradient(const at::Tensor& leaf, at::Tensor gradient);

}  // namespace trireme::parallel
