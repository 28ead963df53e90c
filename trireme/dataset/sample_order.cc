#include "trireme/dataset/sample_order.h"

#include "trireme/base/error.h"

namespace trireme::dataset {

SampleOrder::SampleOrder(int64_t size, uint64_t seed, bool shuffle)
    : size_(size), seed_(seed), shuffle_(shuffle) {
  TRIREME_ASSERT(size >= 1, "an order of ", size, " samples");
}

int64_t SampleOrder::index(int64_t n) const {
  TRIREME_ASSERT(n >= 0, "sample ", n);
  const int64_t epoch = n / size_;
  const int64_t position = n % size_;
  if (!shuffle_) return position;
  const RandomKey key = random_key(seed_, concat("data/epoch/", epoch));
  return static_cast<int64_t>(random_permutation(key, position, size_));
}

RandomKey SampleOrder::augmentation(int64_t n) const {
  return random_key(seed_, concat("data/augmentation/", n));
}

}  // namespace trireme::dataset
