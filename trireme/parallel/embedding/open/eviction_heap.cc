#include "trireme/parallel/embedding/open/eviction_heap.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace trireme::parallel {
namespace {

// Four children share a cache line more often than two, and the heap is half as deep.
constexpr size_t kChildren = 4;

size_t parent_of(size_t place) { return (place - 1) / kChildren; }
size_t first_child_of(size_t place) { return place * kChildren + 1; }

}  // namespace

void EvictionHeap::put(size_t place, const Item& item) {
  items_[place] = item;
  places_[item.slot] = static_cast<uint32_t>(place);
}

void EvictionHeap::rise(size_t place, const Item& item) {
  for (; place > 0 && item.rank < items_[parent_of(place)].rank; place = parent_of(place)) {
    put(place, items_[parent_of(place)]);
  }
  put(place, item);
}

void EvictionHeap::sink(size_t place, const Item& item) {
  while (true) {
    const size_t begin = first_child_of(place);
    if (begin >= items_.size()) break;
    size_t least = begin;
    for (size_t child = begin + 1; child < std::min(begin + kChildren, items_.size()); ++child) {
      if (items_[child].rank < items_[least].rank) least = child;
    }
    if (item.rank < items_[least].rank) break;
    put(place, items_[least]);
    place = least;
  }
  put(place, item);
}

void EvictionHeap::insert(int64_t slot, const EvictionRank& rank) {
  const auto at = static_cast<size_t>(slot);
  if (at >= places_.size()) places_.resize(std::max(at + 1, 2 * places_.size()));
  const Item item{rank, static_cast<uint32_t>(slot)};
  items_.push_back(item);
  rise(items_.size() - 1, item);
}

void EvictionHeap::erase(int64_t slot) {
  const size_t gap = place(slot);
  const Item last = items_.back();
  items_.pop_back();
  if (gap == items_.size()) return;
  // The last item may belong above the gap, when it comes from another branch.
  if (gap > 0 && last.rank < items_[parent_of(gap)].rank) {
    rise(gap, last);
  } else {
    sink(gap, last);
  }
}

void EvictionHeap::clear() {
  items_.clear();
  places_.clear();
}

std::vector<EvictionRank> EvictionHeap::first(int64_t count, const Now& now) {
  // Children come after their parent, so only those of what was taken can be next. None of those
  // that wait here lies below another, so a sinking item moves none of them.
  const auto is_later = [this](size_t a, size_t b) { return items_[a].rank > items_[b].rank; };
  std::priority_queue<size_t, std::vector<size_t>, decltype(is_later)> next(is_later);
  // Ranks are looked at in order without changing the heap, since the ranks of all processes decide
  // together.
  if (!items_.empty()) next.push(0);
  std::vector<EvictionRank> ranks;
  while (!next.empty() && std::ssize(ranks) < count) {
    const size_t place = next.top();
    next.pop();
    const EvictionRank rank = now(items_[place].rank);
    // Its uses have changed since it was put in. Ranks only grow, so it sinks.
    if (rank != items_[place].rank) {
      sink(place, {rank, items_[place].slot});
      next.push(place);
      continue;
    }
    ranks.push_back(rank);
    const size_t begin = first_child_of(place);
    for (size_t child = begin; child < std::min(begin + kChildren, items_.size()); ++child) {
      next.push(child);
    }
  }
  return ranks;
}

}  // namespace trireme::parallel
