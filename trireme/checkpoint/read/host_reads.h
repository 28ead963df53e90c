// The part of a load that the ranks of a host do together: chunks that several of them want are
// read once per host.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/read/read_plan.h"
#include "trireme/checkpoint/shards.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

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

// Where ranks of a host share memory, each chunk that several of them want is read and checked by
// one. Elsewhere every rank reads all that it wants, from the page cache of its host. Offloaded
// tensors, which are in memory one at a time, and format 1 are always read so.
class HostReads {
 public:
  // Describes this rank's entries for the other ranks.
  static std::string describe(const std::filesystem::path& folder, const Manifest& manifest,
                              std::span<const Entry> entries, const comm::Communicator& world);

  // described: every rank's text. `manifest` must outlive this.
  // Comm:       a number; split_by_memory() when ranks of any host have something in common
  // Collective: every rank of `world`
  HostReads(const Manifest& manifest, std::span<const std::string> described,
            comm::Communicator& world);

  // Whether read() reads the entry's chunk.
  bool has(const Entry& entry, const Chunk& chunk) const;

  // Reads into the entries' tensors what several ranks of the host want, see read_shared().
  // Collective: every rank of the world
  void read(std::span<Entry> entries, Shards& shards, const comm::Communicator& world,
            const Peers& peers) const;

 private:
  std::unique_ptr<comm::Communicator> group_;  // null: this rank reads for itself
  ReadPlan plan_;
};

// A group of the ranks of a host, if they can read each other's memory.

// The ranks with the same color. Null when it is negative, when there is one, and when they do not
// share memory, as over gloo and MPI. They try it out: each looks whether it sees what the first
// one writes. So neither the transport's name nor its wrappers count.
// Comm:       a split; 64 KiB from the first rank to each other one
// Collective: every rank of `world`
std::unique_ptr<comm::Communicator> split_by_memory(comm::Communicator& world, int color);

}  // namespace trireme::checkpoint
