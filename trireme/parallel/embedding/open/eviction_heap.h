// Slots of rows in the order of their eviction, of which only the first are ever looked at.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace trireme::parallel::inline internal {

// In the order in which rows are evicted.
struct EvictionRank {
  int64_t weight = 0;  // use_weight(); 0 where only the last use counts
  int64_t last_use = 0;
  int64_t key = 0;
  auto operator<=>(const EvictionRank&) const = default;
};

// Ranks only rise. A rise costs nothing: the heap keeps the old rank until it gets first, and then
// asks for the new one. So rows that are used and not evicted cost no time.
class EvictionHeap {
 public:
  // The slot must not be there.
  // Memory: 36 bytes for each slot
  void insert(int64_t slot, const EvictionRank& rank);
  void erase(int64_t slot);
  void clear();

  // The rank that a slot has now; `old` is an earlier one of its.
  using Now = std::function<EvictionRank(const EvictionRank& old)>;
  // The first ones, at most `count`, in order.
  std::vector<EvictionRank> first(int64_t count, const Now& now);

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
