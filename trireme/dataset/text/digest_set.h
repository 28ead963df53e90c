// A set of digests: the texts that were seen. 16 bytes per place, of which at most three quarters
// are taken: up to 64 bytes per digest while it grows.
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/base/file/digest.h"

namespace trireme::dataset {

// Not thread safe.
class DigestSet {
 public:
  // Whether it was not there.
  bool insert(const Digest& digest);
  size_t size() const { return size_ + (has_zero_ ? 1 : 0); }

 private:
  // Where it is, or where it goes.
  Digest& place_of(const Digest& digest);
  void grow();

  std::vector<Digest> places_ = std::vector<Digest>(1024);  // a power of two; zeros are free
  size_t size_ = 0;                                         // of `places_` that are taken
  bool has_zero_ = false;
};

}  // namespace trireme::dataset
