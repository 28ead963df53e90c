// Postponed weight gradients. While a zero-bubble schedule runs the input part of a backward,
// layers that know this class leave their weights' gradients here.
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

// A layer's backward calls
//
//   if (!deferred.defer(weight, gradient)) grad_weight = gradient();
//
// and gives autograd an undefined gradient if it deferred. Within a stage, either every use of a
// weight defers or none does; then its gradients are added in the same order as without deferring.
// The tensors that `gradient` captures stay in memory until it has run.
// Thread safety: the thread that runs the pipeline, and autograd's threads while they run for it
class DeferredWork {
 public:
  using Key = std::pair<int, int64_t>;  // stage, microbatch

  // While an input part runs, keeps `gradient` for later and returns true. Otherwise returns false.
  bool defer(const at::Tensor& leaf, GradientFunction gradient);

  // Gradients deferred between begin() and end() belong to `key`.
  void begin(const Key& key);
  void end() { is_recording_ = false; }
  // Computes the gradients that `key` deferred, in the order of deferring. Each leaf's gradients
  // are summed first and accumulated once, as in one backward.
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
