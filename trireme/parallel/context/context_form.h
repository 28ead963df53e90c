// The two forms of attention over the context axis.
#pragma once

#include "trireme/base/choice.h"

namespace trireme::parallel {

enum class ContextForm {
  kRing,      // ring_attention(): any number of ranks; traffic depends only on the kv heads
  kAllToAll,  // all_to_all_attention() (Ulysses): at most one rank per query head; two messages
};
inline constexpr Choice<ContextForm> kContextForms[] = {{"ring", ContextForm::kRing},
                                                        {"all-to-all", ContextForm::kAllToAll}};

}  // namespace trireme::parallel
