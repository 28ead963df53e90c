// Runs torch's operators on placed tensors by their rules.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "trireme/spmd/rule.h"

namespace trireme::spmd {

// Throws: ConfigError when libtorch or another library has kernels for this dispatch key
void check_key_is_free(c10::DispatchKey key);

// While it lives, this thread's operators run on blocks: without rules and without autograd.
struct OnBlocks {
  c10::impl::ExcludeDispatchKeyGuard no_rules{c10::DispatchKeySet(kPlacedKey)};
  at::AutoDispatchBelowADInplaceOrView below;
};

// Tells torch's dispatcher about all rules, once per process; place_block() calls it. An operator
// that has no rule and is not made of others throws ConfigError with its name and its arguments'
// places on every rank, before anything is sent.
void register_rules();

// Runs operators in place of their rules, such as a trace, which has no ranks. Its tensors have the
// key and a PlacedMeta without a grid.
class OperatorSink {
 public:
  virtual ~OperatorSink() = default;
  // rule: null where there is none. Takes the arguments from the stack and leaves the results.
  virtual void run(const c10::OperatorHandle& op, torch::jit::Stack& stack, const Rule* rule) = 0;
  // A rule sums a tensor over the ranks, see summed().
  virtual at::Tensor sum(const at::Tensor& tensor) { return tensor; }
};
// That of this thread; null: operators run by their rules.
OperatorSink* current_sink();
// While it lives, this thread's operators go to `sink`, and so do those that make new tensors.
class ToSink {
 public:
  explicit ToSink(OperatorSink& sink);
  ~ToSink();
  ToSink(const ToSink&) = delete;
  ToSink& operator=(const ToSink&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard all_{kPlacedKey};
  OperatorSink* before_;
};

// All rules, sorted by name.
const Rules& all_rules();
// The names of all operators with a rule, sorted.
std::vector<std::string> names_of_rules();

}  // namespace trireme::spmd
