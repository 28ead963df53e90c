#include "trireme/parallel/embedding/open/saved_ids.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"
#include "trireme/parallel/embedding/open/open_key.h"

namespace trireme::parallel::inline internal {

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
  const auto bad = std::ranges::adjacent_find(keys, std::ranges::greater_equal());
  if (bad != keys.end()) {
    throw CheckpointError(
        concat(who, "are not in order at place ", bad - keys.begin(), "; load another checkpoint"));
  }
  std::vector<int64_t> cuts;
  for (const mesh::Range& range : places) {
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

}  // namespace trireme::parallel::inline internal
