#include "trireme/parallel/embedding/open/saved_ids.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/parallel/embedding/open/eviction_heap.h"
#include "trireme/parallel/embedding/open/open_key.h"

namespace trireme::parallel {

namespace {

std::vector<int64_t> numbers_of(const at::Tensor& numbers) {
  if (!numbers.defined()) return {};
  const auto* const begin = numbers.const_data_ptr<int64_t>();
  return {begin, begin + numbers.numel()};
}

}  // namespace

OpenKeys keys_of_saved(const at::Tensor& ids, const at::Tensor& last_uses,
                       const at::Tensor& numbers) {
  OpenKeys keys{
      .keys = numbers_of(ids), .last_uses = numbers_of(last_uses), .numbers = numbers_of(numbers)};
  std::ranges::transform(keys.keys, keys.keys.begin(), open_key);
  return keys;
}

std::vector<float> uses_of_saved(const at::Tensor& uses, const std::string& table) {
  if (!uses.defined()) return {};
  const std::span values(uses.const_data_ptr<float>(), static_cast<size_t>(uses.numel()));
  const auto bad =
      // A wrong count would overflow or never be evicted.
      std::ranges::find_if_not(values, [](float each) { return each >= 1 && each <= kMostUses; });
  if (bad != values.end()) {
    throw CheckpointError(concat("embedding table \"", shown(table), "\": a saved row has ", *bad,
                                 " uses; expected 1 to ", kMostUses, "; load another checkpoint"));
  }
  return {values.begin(), values.end()};
}

void check_waiting(const OpenKeys& rows, const OpenKeys& waiting, const std::string& table) {
  std::vector<int64_t> both;
  std::ranges::set_intersection(rows.keys, waiting.keys, std::back_inserter(both));
  if (both.empty()) return;
  throw CheckpointError(concat("embedding table \"", shown(table), "\": the saved id ",
                               id_of_open_key(both[0]),
                               " has a row and waits for one; load another checkpoint"));
}

at::Tensor ids_to_save(std::vector<int64_t> keys) {
  std::ranges::transform(keys, keys.begin(), id_of_open_key);
  return at::tensor(keys, at::kLong);
}

std::vector<int64_t> cuts_of_saved(const at::Tensor& ids, const std::string& table,
                                   std::span<const mesh::Range> places) {
  const std::string who = concat("embedding table \"", shown(table), "\": the saved ids ");
  if (ids.dim() != 1 || ids.scalar_type() != at::kLong || !ids.is_contiguous()) {
    throw CheckpointError(concat(who, "have shape ", ids.sizes(), " and dtype ", ids.scalar_type(),
                                 "; expected int64 numbers [n]"));
  }
  std::vector<int64_t> keys(static_cast<size_t>(ids.numel()));
  const auto* const begin = ids.const_data_ptr<int64_t>();
  std::transform(begin, begin + ids.numel(), keys.begin(), open_key);
  // Order by key is by place, and a place decides the rank.
  const auto bad = std::ranges::adjacent_find(keys, std::ranges::greater_equal());
  if (bad != keys.end()) {
    throw CheckpointError(
        concat(who, "are not in order at place ", bad - keys.begin(), "; load another checkpoint"));
  }
  std::vector<int64_t> cuts;
  for (const mesh::Range& range : places) {
    // The cuts follow from the keys, so any layout finds its own part in the saved order.
    cuts.push_back(std::ranges::lower_bound(keys, range.offset, {}, place_of_open_key) -
                   keys.begin());
  }
  cuts.push_back(ids.numel());
  return cuts;
}

mesh::Layout layout_of_saved(at::IntArrayRef sizes, const mesh::Axis& axis,
                             const mesh::Placement& placement, const std::vector<int64_t>& cuts) {
  std::vector<int64_t> shape = sizes.vec();
  shape[0] = cuts.back();
  const bool is_replicated = placement.kind == mesh::Placement::Kind::kReplicated;
  return {std::move(shape),
          {axis},
          {is_replicated ? mesh::Placement::replicated() : mesh::Placement::sharded(0, cuts)}};
}

}  // namespace trireme::parallel
