// Section [watch] of a config: what a run writes for those who look at it (`trireme watch`).
#pragma once

#include "trireme/base/key.h"

namespace trireme::train {

struct WatchConfig {
  TRIREME_KEYS_BEGIN(WatchConfig)
  TRIREME_KEY(bool, ranks, true, kMayChange,
              "write the times, memory and waits of every rank and step to `series` in "
              "output.folder; left out by itself where a step has more than 128 KiB of them")
  TRIREME_KEYS_END()
};

}  // namespace trireme::train
