// Section [watch] of a config: what a run writes for those who look at it (`trireme watch`).
#pragma once

#include "trireme/base/choice.h"
#include "trireme/base/key.h"

namespace trireme::train {

enum class WatchMemory { kKinds, kSnapshot };
inline constexpr Choice<WatchMemory> kWatchMemories[] = {{"kinds", WatchMemory::kKinds},
                                                         {"snapshot", WatchMemory::kSnapshot}};

struct WatchConfig {
  TRIREME_KEYS_BEGIN(WatchConfig)
  TRIREME_KEY(bool, ranks, true, kMayChange,
              "write the times, memory and waits of every rank and step to `series` in "
              "output.folder; left out by itself where a step has more than 128 KiB of them")
  TRIREME_KEY(WatchMemory, memory, WatchMemory::kKinds, kMayChange,
              "what is known of a rank's memory; kinds = bytes by kind, snapshot = also the "
              "largest tensors at the peak, with the operator and the part of the model that made "
              "them, in `memory` in output.folder",
              kWatchMemories)
  TRIREME_KEYS_END()
};

}  // namespace trireme::train
