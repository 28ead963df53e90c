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

// The names of all operators with a rule, sorted.
std::vector<std::string> names_of_rules();

}  // namespace trireme::spmd
