#include "trireme/parallel/embedding/gradient_sinks.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "trireme/parallel/embedding/id_exchange.h"
#include "trireme/parallel/embedding/sums/square_tree.h"

namespace trireme::parallel {

namespace {

constexpr int64_t kRowsPerTask = 256;

void divide(const at::Tensor& squares, int64_t width) {
  AT_DISPATCH_FLOATING_TYPES(squares.scalar_type(), "divide", [&] {
    auto* const values = squares.mutable_data_ptr<scalar_t>();
    const auto divisor = static_cast<scalar_t>(width);  // as RowOptimizer does
    for (int64_t i = 0; i < squares.numel(); ++i) values[i] /= divisor;
  });
}

// The mean squares of the tables that need them; the others stay undefined.
// sums: of each table
std::vector<at::Tensor> mean_squares(const TableGroup& group, std::span<const at::Tensor> sums,
                                     TableCounts& counts) {
  std::vector<at::Tensor> means(sums.size());
  std::vector<SplitRows> split;
  for (size_t t = 0; t < sums.size(); ++t) {
    if (group.tables[t].needs_mean_squares()) split.push_back({sums[t], group.parts[t].columns});
  }
  if (split.empty()) return means;
  const std::vector<at::Tensor> squares =
      gather_squares(split, group.group, {.dtype = group.dtype, .symmetric = group.symmetric});
  for (size_t t = 0, next = 0; t < sums.size(); ++t) {
    if (!group.tables[t].needs_mean_squares()) continue;
    means[t] = squares[next++];
    divide(means[t], group.configs[t].width);
  }
  const size_t num_ranks = split[0].columns.size();
  for (const SplitRows& table : split) {
    for (size_t r = 0; r < num_ranks; ++r) {
      const int64_t bytes = table.values.size(0) * num_square_sums(table.columns[r]) *
                            static_cast<int64_t>(c10::elementSize(group.dtype));
      if (r == group.rank()) {
        counts.sent_bytes += static_cast<int64_t>(num_ranks - 1) * bytes;
      } else {
        counts.received_bytes += bytes;
      }
    }
  }
  return means;
}

// means: undefined: the rows are whole, or the rule does not need them
void update_table(EmbeddingTable& table, const at::Tensor& rows, const at::Tensor& sums,
                  const at::Tensor& means) {
  std::vector<int64_t> memory;
  // Slots of the look-up are no longer valid: rows may have been evicted since.
  table.release();
  const std::span changed(rows.const_data_ptr<int64_t>(), static_cast<size_t>(rows.numel()));
  const std::span<const int64_t> slots = table.fetch_used(changed, memory);
  const int64_t row_bytes = sums.size(1) * sums.element_size();
  at::parallel_for(0, rows.numel(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    const auto first = static_cast<size_t>(begin), count = static_cast<size_t>(end - begin);
    const auto* const of_rows =
        static_cast<const std::byte*>(sums.const_data_ptr()) + begin * row_bytes;
    const auto* const of_means =
        means.defined()
            ? static_cast<const std::byte*>(means.const_data_ptr()) + begin * means.element_size()
            : nullptr;
    table.optimizer().update(slots.subspan(first, count), of_rows, of_means);
    table.mark_changed(changed.subspan(first, count), slots.subspan(first, count));
  });
}

}  // namespace

void UpdateRows::begin(size_t table, std::span<const int64_t> rows) {
  // The rule needs sums of all columns, which come only after the last rank.
  if (group_.tables[table].needs_mean_squares()) return waiting_.begin(table, rows);
  group_.tables[table].release();
  slots_ = group_.tables[table].fetch_used(rows, memory_);
}

void UpdateRows::take(size_t table, int64_t first, std::span<const int64_t> rows,
                      const void* sums) {
  if (group_.tables[table].needs_mean_squares()) return waiting_.take(table, first, rows, sums);
  const auto slots = slots_.subspan(static_cast<size_t>(first), rows.size());
  group_.tables[table].optimizer().update(slots, sums);
  group_.tables[table].mark_changed(rows, slots);
}

void UpdateRows::finish(TableCounts& counts) { update_rows(group_, waiting_.stored(), 1, counts); }

void update_rows(TableGroup& group, std::span<const RowGradients> gradients, double factor,
                 TableCounts& counts) {
  std::vector<at::Tensor> sums(gradients.size());
  const auto scale = [&](size_t t) {
    sums[t] = factor == 1 ? gradients[t].sums : gradients[t].sums * factor;
  };
  for (size_t t = 0; t < sums.size(); ++t) {
    // Those that are exchanged need their factor before.
    if (group.tables[t].needs_mean_squares()) scale(t);
  }
  const std::vector<at::Tensor> means = mean_squares(group, sums, counts);
  for (size_t t = 0; t < sums.size(); ++t) {
    // A table without a look-up in this step.
    if (!gradients[t].rows.defined()) continue;
    if (!sums[t].defined()) scale(t);
    update_table(group.tables[t], gradients[t].rows - group.parts[t].first_row(group.rank()),
                 sums[t], means[t]);
    // One table at a time: its sums are freed before the next.
    sums[t].reset();
  }
}

std::vector<at::Tensor> row_squares(const TableGroup& group,
                                    std::span<const RowGradients> gradients) {
  std::vector<at::Tensor> result(gradients.size());
  std::vector<SplitRows> split;
  for (size_t t = 0; t < result.size(); ++t) {
    const TableParts& parts = group.parts[t];
    const at::Tensor& sums = gradients[t].sums;
    if (parts.is_by_columns) {
      // The lowest rank that has columns counts for all.
      const auto owner =
          std::ranges::find_if(parts.columns, [](mesh::Range r) { return r.size > 0; });
      split.push_back({sums, parts.columns, static_cast<int>(owner - parts.columns.begin())});
    } else if (!parts.is_replicated || group.rank() == 0) {
      // Replicas hold the same sums, which count once.
      const int64_t whole[] = {0};
      result[t] = squares_of(sums, {0, sums.size(1)}, whole, at::kDouble)[0];
    }
  }
  if (split.empty()) return result;
  const std::vector<at::Tensor> squares =
      gather_squares(split, group.group, {.dtype = at::kDouble, .symmetric = group.symmetric});
  for (size_t t = 0, next = 0; t < result.size(); ++t) {
    if (group.parts[t].is_by_columns) result[t] = squares[next++];
  }
  return result;
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
  if (part.nbytes() == 0) return;  // a rank without columns
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

}  // namespace trireme::parallel
