// What whoever makes a group chooses; a transport ignores what it has no use for.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

class Recorder;

struct GroupOptions {
  std::string name = "world";                           // in errors
  std::chrono::milliseconds timeout = kDefaultTimeout;  // of operations that give none
  // Through which ordinary tensors go, two a rank: larger ones need fewer synchronisations, smaller
  // ones stay in cache.
  size_t slot_bytes = 512 << 10;
  // How much symmetric memory a rank may allocate; 0: what the host has, at most 2 TiB / its ranks,
  // and half of what limits allow (ulimit -v, -f). Only what is allocated takes memory.
  size_t heap_bytes = 0;
  // false: stages every tensor, symmetric or not. The results do not change.
  bool zero_copy = true;
  // Where this rank's calls are recorded, in its sub-groups too; null: nowhere.
  std::shared_ptr<Recorder> recorder = nullptr;
  std::vector<int> world_ranks =
      {};  // of the members, for errors and the recorder; empty: 0, 1, ...
};

}  // namespace trireme::comm
