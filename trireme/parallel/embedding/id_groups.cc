#include "trireme/parallel/embedding/id_groups.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "trireme/base/error.h"

namespace trireme::parallel::inline internal {
namespace {

// An id and its place in one number, which sorts by both. Needs ids below 2^32.
constexpr int kPlaceBits = 31;
constexpr int kMostDigitBits = 11;
constexpr size_t kFewerThanRadix = 256;

// Sorts by the id alone. The places rise already, and each pass keeps the order of equal digits.
void sort_by_radix(std::vector<uint64_t>& keys, int id_bits) {
  const int num_passes = std::max(1, (id_bits + kMostDigitBits - 1) / kMostDigitBits);
  const int digit_bits = (id_bits + num_passes - 1) / num_passes;
  const uint64_t mask = (uint64_t{1} << digit_bits) - 1;
  std::vector<uint64_t> other(keys.size());
  for (int pass = 0; pass < num_passes; ++pass) {
    const int shift = kPlaceBits + pass * digit_bits;
    uint32_t next[(1 << kMostDigitBits) + 1] = {};
    for (const uint64_t key : keys) ++next[((key >> shift) & mask) + 1];
    for (size_t digit = 1; digit <= mask; ++digit) next[digit] += next[digit - 1];
    for (const uint64_t key : keys) other[next[(key >> shift) & mask]++] = key;
    keys.swap(other);
  }
}

// place_at(i), id_at(i): of entry i in sorted order.
template <typename PlaceAt, typename IdAt>
IdGroups groups_of_sorted(size_t count, const PlaceAt& place_at, const IdAt& id_at) {
  IdGroups groups;
  groups.places.resize(count);
  groups.ids.reserve(count);
  groups.first.reserve(count + 1);
  for (size_t i = 0; i < count; ++i) {
    const int64_t id = id_at(i);
    if (groups.ids.empty() || groups.ids.back() != id) {
      groups.ids.push_back(id);
      groups.first.push_back(static_cast<int64_t>(i));
    }
    groups.places[i] = place_at(i);
  }
  groups.first.push_back(static_cast<int64_t>(count));
  return groups;
}

}  // namespace

std::vector<int32_t> IdGroups::group_of_place() const {
  std::vector<int32_t> groups(places.size());
  for (int32_t i = 0; i < static_cast<int32_t>(size()); ++i) {
    for (int64_t k = first[static_cast<size_t>(i)]; k < first[static_cast<size_t>(i) + 1]; ++k) {
      groups[static_cast<size_t>(places[static_cast<size_t>(k)])] = i;
    }
  }
  return groups;
}

IdGroups group_ids(std::span<const int64_t> values, int64_t limit) {
  TRIREME_CHECK(values.size() < (size_t{1} << kPlaceBits), "a table has ", values.size(),
                " ids in one batch; at most 2^31 - 1 are possible");
  const int id_bits = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(limit - 1, 0)));
  if (id_bits > 32) {
    std::vector<int32_t> places(values.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int32_t>(i);
    const auto id_of = [&](int32_t place) { return values[static_cast<size_t>(place)]; };
    std::ranges::stable_sort(places, {}, id_of);
    return groups_of_sorted(
        places.size(), [&](size_t i) { return places[i]; },
        [&](size_t i) { return id_of(places[i]); });
  }
  std::vector<uint64_t> keys(values.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = (static_cast<uint64_t>(values[i]) << kPlaceBits) | i;
  }
  if (keys.size() < kFewerThanRadix) {
    std::ranges::sort(keys);
  } else {
    sort_by_radix(keys, id_bits);
  }
  constexpr uint64_t kPlaceMask = (uint64_t{1} << kPlaceBits) - 1;
  return groups_of_sorted(
      keys.size(), [&](size_t i) { return static_cast<int32_t>(keys[i] & kPlaceMask); },
      [&](size_t i) { return static_cast<int64_t>(keys[i] >> kPlaceBits); });
}

}  // namespace trireme::parallel::inline internal
