// Slots of rows in the order of their eviction, of which only the first are ever looked at.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace trireme::parallel::inline internal {

// In the order in which rows are evicted.
struct EvictionRank {
  int64_t weight = 0;  // use_weight(); 0 where only the last use counts
  int64_t last_use = 0;
  int64_t key = 0;
  auto operator<=>(const EvictionRank&) const = default;
};

// A heap of four children, so a row that is used often lies near its leaves and moves little.
class EvictionHeap {
 public:
  // The slot must not be there.
  // Memory: 36 bytes for each slot
  void insert(int64_t slot, const EvictionRank& rank);
  // rank: after the one that the slot had
  void raise(int64_t slot, const EvictionRank& rank);
  void erase(int64_t slot);
  void clear();

  const EvictionRank& rank(int64_t slot) const { return items_[place(slot)].rank; }
  // There must be one.
  const EvictionRank& first() const { return items_.front().rank; }
  // The first ones, at most `count`, in order.
  std::vector<EvictionRank> first(int64_t count) const;

 private:
  struct Item {
    EvictionRank rank{};
    uint32_t slot = 0;
  };
  size_t place(int64_t slot) const { return places_[static_cast<size_t>(slot)]; }
  void put(size_t place, const Item& item);
  void sink(size_t place, const Item& item);
  void rise(size_t place, const Item& item);

  std::vector<Item> items_;
  std::vector<uint32_t> places_;  // [slots] in items_
};

}  // namespace trireme::parallel::inline internal
