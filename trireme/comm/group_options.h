// Options for making a group. A transport ignores those it has no use for.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

class Cancellation;
class Recorder;

struct GroupOptions {
  std::string name = "world";                           // in errors
  std::chrono::milliseconds timeout = kDefaultTimeout;  // for operations that set none
  // Size of the two staging buffers that a rank has for ordinary tensors. Larger ones need fewer
  // synchronisations; smaller ones stay in cache.
  size_t slot_bytes = 512 << 10;
  // Limit on a rank's symmetric memory. 0: the host's shared memory, at most the rank's share of 2
  // TiB and of half the process limits (ulimit -v, -f). Only what is allocated takes memory.
  size_t heap_bytes = 0;
  // false: stages every tensor, even symmetric ones. The results do not change.
  bool zero_copy = true;
  // Records the calls of this rank, including those of its sub-groups; null: nothing is recorded.
  std::shared_ptr<Recorder> recorder = nullptr;
  // Aborts the group and its sub-groups, and a meeting that is not complete; null: nothing does.
  std::shared_ptr<Cancellation> cancellation = nullptr;
  std::vector<int> world_ranks =
      {};  // of the members, for errors and the recorder; empty: 0, 1, ...
};

}  // namespace trireme::comm
