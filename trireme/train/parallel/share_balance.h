// Chooses the data ranks' shares of a batch from the measured times of their steps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/machine/memory_ledger.h"
#include "trireme/mesh/device_mesh.h"

namespace trireme::train {

// What is known of a data rank.
struct ShareTime {
  int64_t share = 0;   // samples per forward, at least 1
  double seconds = 0;  // that a step takes it without waiting for others
  int64_t most = 0;    // samples per forward that its memory holds, at least `share`
};

// Shares with the same sum, each at least 1, under which the slowest rank takes the least time if
// times grow with shares. Empty unless that is less than the slowest takes now by more than
// `threshold` of it. Applied again and again it comes to equal times, though a part of a rank's
// time is the same under any share.
std::optional<std::vector<int64_t>> better_shares(std::span<const ShareTime> ranks,
                                                  double threshold);

// Measures the ranks.
// Thread safety: one thread drives it. The mesh must outlive it.
class ShareBalance {
 public:
  // Collective: every rank of the mesh's world
  explicit ShareBalance(const mesh::DeviceMesh& mesh);

  // Adds a step: what this rank worked, without what it waited for others.
  void add(double seconds) { seconds_.push_back(seconds); }

  // better_shares() than `shares`, by the medians of the steps so far, which are then discarded. A
  // data rank is as slow as its slowest rank, holds what its fullest can, and gets at most twice
  // its share at a time. Rank 0 decides.
  // memory:     what this rank has had
  // Comm:       24 bytes from every rank to all, then the shares from rank 0
  // Collective: every rank of the mesh's world
  std::optional<std::vector<int64_t>> better(std::span<const int64_t> shares,
                                             const MemoryUse& memory);
  // "0.52 s to 0.31 s": the shortest and longest time of a data rank, of the last call.
  const std::string& times() const { return times_; }

 private:
  int64_t most_samples(int64_t share, const MemoryUse& memory);

  const mesh::DeviceMesh& mesh_;
  mesh::Position place_;  // among the ranks that read other samples
  int64_t num_local_ = 1;
  int64_t largest_share_ = 1;  // that this rank has had
  std::vector<double> seconds_;
  std::string times_;
};

}  // namespace trireme::train
