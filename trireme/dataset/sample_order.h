// The order of a source's samples: a pure function of (seed, position). Every layout and every
// resume therefore sees the same samples in the same order. Holds no position.
#pragma once

#include <cstdint>

#include "trireme/base/random/random.h"

namespace trireme::dataset {

class SampleOrder {
 public:
  // Each epoch visits all `size` samples in its own order, or if not shuffled, by index.
  SampleOrder(int64_t size, uint64_t seed, bool shuffle);

  int64_t size() const { return size_; }
  // The index of sample n. n counts over all ranks from the run's first step on.
  int64_t index(int64_t n) const;
  // The random numbers of sample n, for its augmentation.
  RandomKey augmentation(int64_t n) const;

 private:
  int64_t size_;
  uint64_t seed_;
  bool shuffle_;
};

}  // namespace trireme::dataset
