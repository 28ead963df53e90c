#include "trireme/dataset/text/digest_set.h"

#include <utility>

namespace trireme::dataset {

bool DigestSet::insert(const Digest& digest) {
  if (digest == Digest{}) return !std::exchange(has_zero_, true);
  Digest* place = &place_of(digest);
  if (*place == digest) return false;
  if ((size_ + 1) * 4 > places_.size() * 3) {
    grow();
    place = &place_of(digest);
  }
  *place = digest;
  ++size_;
  return true;
}

Digest& DigestSet::place_of(const Digest& digest) {
  const size_t mask = places_.size() - 1;
  size_t at = digest.low & mask;
  while (places_[at] != Digest{} && places_[at] != digest) at = (at + 1) & mask;
  return places_[at];
}

void DigestSet::grow() {
  const std::vector<Digest> old = std::exchange(places_, std::vector<Digest>(places_.size() * 2));
  for (const Digest& digest : old) {
    if (digest != Digest{}) place_of(digest) = digest;
  }
}

}  // namespace trireme::dataset
