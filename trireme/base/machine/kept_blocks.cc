#include "trireme/base/machine/kept_blocks.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace trireme {

KeptBlocks::Block KeptBlocks::remove(std::multimap<size_t, Freed::iterator>::iterator found) {
  const Block block = *found->second;
  freed_.erase(found->second);
  by_size_.erase(found);
  kept_ -= block.bytes;
  return block;
}

KeptBlocks::Block KeptBlocks::take(size_t bytes, std::vector<Block>& evicted) {
  const std::lock_guard lock(mutex_);
  const auto found = by_size_.lower_bound(bytes);
  if (found != by_size_.end() && found->first - bytes <= bytes / 8) {
    const Block block = remove(found);
    in_use_ += block.bytes;
    return block;
  }
  in_use_ += bytes;
  const size_t most = std::max(most_in_use_, in_use_);
  while (in_use_ + kept_ > most) {  // of equal sizes the first freed is the last
    evicted.push_back(remove(std::prev(by_size_.upper_bound(freed_.front().bytes))));
  }
  return {nullptr, bytes};
}

void KeptBlocks::keep(Block block) {
  const std::lock_guard lock(mutex_);
  most_in_use_ = std::max(most_in_use_, in_use_);
  in_use_ -= block.bytes;
  kept_ += block.bytes;
  // Of equal sizes the one freed last comes first: its pages are the likeliest to be in a cache.
  by_size_.emplace_hint(by_size_.lower_bound(block.bytes), block.bytes,
                        freed_.insert(freed_.end(), block));
}

void KeptBlocks::forget(size_t bytes) {
  const std::lock_guard lock(mutex_);
  in_use_ -= bytes;
}

std::vector<KeptBlocks::Block> KeptBlocks::release_all() {
  const std::lock_guard lock(mutex_);
  by_size_.clear();
  kept_ = 0;
  const Freed all = std::exchange(freed_, {});
  return {all.begin(), all.end()};
}

size_t KeptBlocks::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

}  // namespace trireme
