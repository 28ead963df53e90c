#include "trireme/parallel/embedding/gradient_sinks.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <ATen/ATen.h>

#include "trireme/parallel/embedding/id_groups.h"

namespace trireme::parallel::inline internal {

void UpdateRows::begin(size_t table, std::span<const int64_t> rows) {
  group_.tables[table].release();
  slots_ = group_.tables[table].fetch_used(rows, memory_);
}

void UpdateRows::take(size_t table, int64_t first, std::span<const int64_t> rows,
                      const void* sums) {
  const auto slots = slots_.subspan(static_cast<size_t>(first), rows.size());
  group_.tables[table].optimizer().update(slots, sums);
  group_.tables[table].mark_changed(rows, slots);
}

void StoreSums::begin(size_t table, std::span<const int64_t> rows) {
  const at::Tensor& weights = group_.tables[table].weights();
  const auto count = std::ssize(rows);
  RowGradients& stored = stored_[table];
  stored.rows = at::empty({count}, at::kLong);
  std::ranges::copy(rows, stored.rows.mutable_data_ptr<int64_t>());
  stored.rows += group_.parts[table].first_row(group_.rank());
  stored.sums = at::empty({count, weights.size(1)}, weights.options());
}

void StoreSums::take(size_t table, int64_t first, std::span<const int64_t> rows, const void* sums) {
  const at::Tensor part = stored_[table].sums.narrow(0, first, std::ssize(rows));
  std::memcpy(part.mutable_data_ptr(), sums, part.nbytes());
}

RowGradients sum_of(const RowGradients& a, const RowGradients& b, bool is_open) {
  const at::Tensor rows = at::cat({a.rows, b.rows}), sums = at::cat({a.sums, b.sums});
  const std::span values(rows.const_data_ptr<int64_t>(), static_cast<size_t>(rows.numel()));
  const int64_t limit = is_open             ? std::numeric_limits<int64_t>::max()
                        : rows.numel() == 0 ? 0
                                            : rows.max().item<int64_t>() + 1;
  const IdGroups groups = group_ids(values, limit);
  const at::Tensor places = at::empty({groups.size()}, at::kLong), others = at::empty_like(places);
  auto* const place = places.mutable_data_ptr<int64_t>();
  auto* const other = others.mutable_data_ptr<int64_t>();
  int64_t num_both = 0;
  const at::Tensor both = at::empty({groups.size()}, at::kLong);
  for (size_t i = 0; i < groups.ids.size(); ++i) {
    const auto first = static_cast<size_t>(groups.first[i]);
    place[i] = groups.places[first];
    if (groups.first[i + 1] - groups.first[i] < 2) continue;
    both.mutable_data_ptr<int64_t>()[num_both] = static_cast<int64_t>(i);
    other[num_both++] = groups.places[first + 1];
  }
  at::Tensor result = sums.index_select(0, places);
  result.index_add_(0, both.narrow(0, 0, num_both),
                    sums.index_select(0, others.narrow(0, 0, num_both)));
  return {rows.index_select(0, places), result};
}

}  // namespace trireme::parallel::inline internal
