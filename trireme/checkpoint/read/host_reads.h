// The part of a load that the ranks of a host do together.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/read/read_plan.h"
#include "trireme/checkpoint/read/shared_reads.h"
#include "trireme/checkpoint/shards.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint::inline internal {

// Where ranks of a host share memory, each chunk that several of them want is read and checked by
// one. Elsewhere every rank reads all that it wants, from the page cache of its host. Offloaded
// tensors, which are in memory one at a time, and format 1 are always read so.
class HostReads {
 public:
  // What the other ranks must know of this one's entries.
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
  std::unique_ptr<comm::Communicator> group_;  // null: this rank reads alone
  ReadPlan plan_;
};

}  // namespace trireme::checkpoint::inline internal
