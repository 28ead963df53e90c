// The order of a source's samples: a pure function of (seed, position). Every layout and every
// resume therefore sees the same samples in the same order. Holds no position.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/base/random/random.h"

namespace trireme::dataset {

// Samples of a source in shards that are shuffled together, within an epoch.
inline constexpr int64_t kShuffleWindow = 4096;

// Thread safe.
class SampleOrder {
 public:
  // Each epoch visits all `size` samples in its own order, or if not shuffled, by index.
  // shards: the sizes of the source's parts, see Source::shard_sizes(); empty: any sample may
  //         follow any other. Otherwise an epoch takes the shards in its own order, each from its
  //         beginning, and shuffles windows of `window` samples of that sequence; so its reads stay
  //         within few shards for a while.
  SampleOrder(int64_t size, uint64_t seed, bool shuffle, std::vector<int64_t> shards = {},
              int64_t window = kShuffleWindow);

  int64_t size() const { return size_; }
  // The index of sample n. n counts over all ranks from the run's first step on.
  int64_t index(int64_t n) const;
  // The random numbers of sample n, for its augmentation.
  RandomKey augmentation(int64_t n) const;

 private:
  class Shards;

  int64_t size_;
  uint64_t seed_;
  bool shuffle_;
  std::shared_ptr<const Shards> shards_;  // null without shards
};

}  // namespace trireme::dataset
