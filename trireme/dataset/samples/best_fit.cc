#include "trireme/dataset/samples/best_fit.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// The open bins by the room that they have left: a queue for each number of tokens.
class Rooms {
 public:
  void add(int64_t room, uint32_t bin) {
    if (bin >= next_.size()) next_.resize(static_cast<size_t>(bin) + 1, kNone);
    next_[bin] = kNone;
    const auto [found, is_new] = queues_.try_emplace(room, Queue{bin, bin});
    if (is_new) return;
    next_[found->second.last] = bin;
    found->second.last = bin;
  }

  struct Taken {
    uint32_t bin = kNone;
    int64_t room = 0;
  };
  // The bin with the least room of at least `size`; kNone when there is none.
  Taken take(int64_t size) {
    const auto found = queues_.lower_bound(size);
    if (found == queues_.end()) return {};
    const Taken taken{found->second.first, found->first};
    if (taken.bin == found->second.last) {
      queues_.erase(found);
    } else {
      found->second.first = next_[taken.bin];
    }
    return taken;
  }

 private:
  struct Queue {
    uint32_t first;
    uint32_t last;
  };
  std::map<int64_t, Queue> queues_;
  std::vector<uint32_t> next_;  // the bin behind each in its queue
};

// Turns counts into the place where each begins.
void turn_into_begins(std::vector<int64_t>& counts) {
  std::exclusive_scan(counts.begin(), counts.end(), counts.begin(), int64_t{0});
}

// The items from the largest to the smallest, those of size 0 last.
std::vector<uint32_t> by_size(std::span<const int64_t> sizes) {
  std::vector<uint32_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, std::greater<>(), [&](uint32_t i) { return sizes[i]; });
  return order;
}

}  // namespace

PackedBins best_fit_decreasing(std::span<const int64_t> sizes, int64_t room) {
  TRIREME_CHECK(sizes.size() < kNone, sizes.size(),
                " documents are to be packed; expected fewer than ", kNone,
                ": cut the data into parts, or pack it as a stream");
  std::vector<uint32_t> order = by_size(sizes);
  while (!order.empty() && sizes[order.back()] == 0) order.pop_back();
  Rooms rooms;
  std::vector<uint32_t> bins;  // of the items, in `order`
  bins.reserve(order.size());
  std::vector<int64_t> begins;
  for (const uint32_t item : order) {
    const int64_t size = sizes[item];
    TRIREME_ASSERT(size >= 0 && size <= room, "an item of ", size, " in bins of ", room);
    Rooms::Taken taken = rooms.take(size);
    if (taken.bin == kNone) {
      taken = {static_cast<uint32_t>(begins.size()), room};
      begins.push_back(0);
    }
    bins.push_back(taken.bin);
    ++begins[taken.bin];
    if (taken.room > size) rooms.add(taken.room - size, taken.bin);
  }
  turn_into_begins(begins);
  PackedBins packed{.items = std::vector<uint32_t>(order.size()), .ends = std::move(begins)};
  // An item moves its bin's begin on, so that it ends as the bin's end.
  for (size_t i = 0; i < order.size(); ++i) {
    packed.items[static_cast<size_t>(packed.ends[bins[i]]++)] = order[i];
  }
  return packed;
}

}  // namespace trireme::dataset
