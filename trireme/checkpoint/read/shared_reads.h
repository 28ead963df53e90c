// Reads chunks that several ranks of a host want, each of them once per host.
#pragma once

#include <functional>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/read/read_plan.h"
#include "trireme/checkpoint/shards.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint::inline internal {

// A tensor that this rank reads, and the box that it holds.
struct Target {
  mesh::Box box;
  at::Tensor tensor;
};

// Each rank reads its chunks of `plan`, compares their digests and puts them into shared memory;
// the others that want them copy them from there. A rank that fails does not leave the others
// waiting: they go on without its chunks. So the tensors are complete only when no rank throws.
// group: ranks as in the plan, which can read each other's memory; others would work, by copies
// targets: by name, of the boxes that were planned
// Memory:     two of the plan's largest batch
// Comm:       each chunk once to each other rank that wants it
// Collective: every rank of `group`
// Throws:     CheckpointError and Error of this rank's own reads; CommError
void read_shared(const ReadPlan& plan, Shards& shards, const std::map<std::string, Target>& targets,
                 comm::Communicator& group, const Peers& peers);

}  // namespace trireme::checkpoint::inline internal
