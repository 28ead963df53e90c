// The order in which rows of an open vocabulary are evicted, by their recent uses.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace trireme::parallel {

// The recent uses of a row: every `halve_steps` steps, all uses so far are halved.
// With e(k) = floor(k / halve_steps), or 0 if it is 0, a row that is used in step k has
//   u = 1 + u' 2^(e(k') - e(k))
// uses, where u' is the number after its previous use, in step k'. At a later step n there are
// u 2^(e(k) - e(n)), so the order of two rows is that of their u 2^e(k). It does not change until
// one of them is used, and halving touches no row.
// Sources: halving: Einziger et al. 2017, arXiv:1512.00727 (TinyLFU), section 3.3; the order: Lee
//          et al. 2001, "LRFU: a spectrum of policies that subsumes the least recently used and
//          least frequently used policies", property 3

inline constexpr float kMostUses = 1 << 24;  // one more has no effect in fp32

constexpr int64_t halvings(int64_t step, int64_t halve_steps) {
  return halve_steps > 0 ? step / halve_steps : 0;
}

// u after a use in step `step`. last_use: k'
inline float uses_after(float uses, int64_t last_use, int64_t step, int64_t halve_steps) {
  constexpr int64_t kNothingLeft = 64;
  const int64_t times = halvings(step, halve_steps) - halvings(last_use, halve_steps);
  return 1 + std::ldexp(uses, -static_cast<int>(std::clamp<int64_t>(times, 0, kNothingLeft)));
}

// A number that rises with u 2^e(k), for u in [1, kMostUses]. The bits of positive floating-point
// numbers rise with them, and the exponent is in the upper ones.
inline int64_t use_weight(float uses, int64_t last_use, int64_t halve_steps) {
  constexpr int kMantissaBits = 23;
  return std::bit_cast<int32_t>(uses) + (halvings(last_use, halve_steps) << kMantissaBits);
}

// Slots of rows in the order of their eviction. Only the first ones are ever looked at.

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

}  // namespace trireme::parallel
