// The blocks of a step's probes that a rank has, in a file until the step ends. Memory: one block.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/file/file.h"
#include "trireme/mesh/layout.h"
#include "trireme/mesh/probe.h"

namespace trireme::train {

// Where a file has a block.
struct StoredBlock {
  mesh::Box box{};
  uint64_t offset = 0;   // of its bytes, row-major
  std::string digest{};  // of them
};

// What a rank has of a probe.
struct StoredProbe {
  at::ScalarType dtype = at::ScalarType::Float;
  std::vector<int64_t> whole{};
  int stage = 0;
  int64_t order = 0;  // of its first block among those of the rank
  std::vector<StoredBlock> blocks{};
};
using StoredProbes = std::map<std::string, StoredProbe>;  // by name

// As text for other ranks, and the reverse.
std::string to_text(const StoredProbes& probes);
StoredProbes parse_probes(const std::string& text);

// What probes may take: their whole tensors' bytes, `copies` times.
struct ProbeRoom {
  uint64_t free = ~uint64_t{0};
  uint64_t copies = 0;
};

// Throws: ConfigError when `num_bytes` of tensors, so often, do not fit; path: for the message
void check_room(const std::filesystem::path& path, const ProbeRoom& room, uint64_t num_bytes);

// Thread safe.
class ProbeFile {
 public:
  // room: by default without end
  // Throws: Error when it cannot be written; so does put()
  ProbeFile(std::filesystem::path path, ProbeRoom room);
  // Removes the file.
  ~ProbeFile();
  ProbeFile(const ProbeFile&) = delete;
  ProbeFile& operator=(const ProbeFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Only when nobody puts any more.
  const StoredProbes& probes() const { return probes_; }

  // Leaves out a block that it has: a forward that is repeated. A whole tensor counts with its
  // gradient as soon as its name is known, so a disk that is too small is found in the first
  // microbatch.
  // Throws: ConfigError when the room does not do, or a probe has two shapes or types
  void put(const verify::ProbedBlock& block);

 private:
  StoredProbe& probe_of(const verify::ProbedBlock& block);

  std::filesystem::path path_;
  ProbeRoom room_;
  OutputFile file_;
  std::mutex mutex_;
  StoredProbes probes_;
  std::set<std::pair<std::string, std::vector<int64_t>>> seen_;  // names, first boxes' offsets
  uint64_t end_ = 0;
  uint64_t counted_ = 0;  // bytes of whole tensors
};

// Reads the part of a probe that lies in `box` from the ranks' files.
// files, ranks: by rank. Memory: as much again, where blocks have parts of its rows
at::Tensor read_blocks(std::span<const std::filesystem::path> files,
                       std::span<const StoredProbes> ranks, const std::string& name,
                       const mesh::Box& box);

// Blocks of which several ranks have the same box.
struct ProbeReplicas {
  std::vector<int> ranks{};  // with other bits than the first that has it
  double absolute = 0;       // largest difference; infinite if it is not finite
  double relative = 0;       // to the largest |value| of those boxes
};
// files, ranks: as for read_blocks(). Memory: 1 MiB
ProbeReplicas compare_replicas(std::span<const std::filesystem::path> files,
                               std::span<const StoredProbes> ranks, const std::string& name);
// How many elements all ranks have, each box counted once.
int64_t num_covered(std::span<const StoredProbes> ranks, const std::string& name);

}  // namespace trireme::train
