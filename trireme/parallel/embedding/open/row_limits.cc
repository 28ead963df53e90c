#include "trireme/parallel/embedding/open/row_limits.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"

namespace trireme::parallel::inline internal {
namespace {

// The rows of each rank, [ranks][tables].
std::vector<std::vector<int64_t>> gather_rows(std::span<const LimitedRows> tables,
                                              comm::Communicator* group) {
  std::vector<int64_t> own;
  for (const LimitedRows& table : tables) own.push_back(table.rows.counts().rows);
  const bool is_alone =
      group == nullptr || std::ranges::all_of(tables, &LimitedRows::is_replicated);
  if (is_alone) return {own};
  const auto T = std::ssize(tables);
  const at::Tensor mine = at::tensor(own, at::kLong),
                   all = at::empty({group->size(), T}, at::kLong);
  group->all_gather(all.unbind(0), mine)->wait();
  std::vector<std::vector<int64_t>> rows;
  for (const auto* row = all.const_data_ptr<int64_t>(); std::ssize(rows) < group->size();
       row += T) {
    rows.emplace_back(row, row + T);
  }
  return rows;
}

// How many of this rank's rows are among the `excess` of all ranks that go first.
// most: rows that a rank sends
int64_t count_own(const LimitedRows& table, int64_t excess, int64_t most,
                  comm::Communicator& group) {
  const std::vector<EvictionRank> own = table.rows.first_to_evict(excess);
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();  // no last use
  const int64_t columns = table.counts_uses ? 3 : 2;
  const at::Tensor mine = at::full({most, columns}, kNever, at::kLong);
  auto* number = mine.mutable_data_ptr<int64_t>();
  for (const EvictionRank& rank : own) {
    *number++ = rank.last_use;
    *number++ = rank.key;
    if (table.counts_uses) *number++ = rank.weight;
  }
  const at::Tensor all = at::empty({group.size(), most, columns}, at::kLong);
  group.all_gather(all.unbind(0), mine)->wait();
  std::vector<EvictionRank> ranks;
  const auto* at = all.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < group.size() * most; ++i, at += columns) {
    if (at[0] == kNever) continue;
    ranks.push_back({.weight = table.counts_uses ? at[2] : 0, .last_use = at[0], .key = at[1]});
  }
  const auto last = ranks.begin() + (excess - 1);
  std::ranges::nth_element(ranks, last);
  return std::ranges::upper_bound(own, *last) - own.begin();
}

}  // namespace

void keep_limits(std::span<const LimitedRows> tables, comm::Communicator* group) {
  if (tables.empty()) return;
  const std::vector<std::vector<int64_t>> rows = gather_rows(tables, group);
  for (size_t t = 0; t < tables.size(); ++t) {
    const LimitedRows& table = tables[t];
    const int64_t own = table.rows.counts().rows;
    int64_t all = 0, most = 0;
    for (const std::vector<int64_t>& of_rank : rows) {
      all += of_rank[t];
      most = std::max(most, of_rank[t]);
    }
    if (table.is_replicated) all = own;
    const int64_t excess = all - table.max_rows;
    if (excess <= 0) continue;
    TRIREME_CHECK(table.evicts, "embedding table \"", shown(table.table), "\" has ", all,
                  " rows; expected at most ", table.max_rows,
                  " (open_max_rows); allow more, evict old ones, drop rows after fewer steps or "
                  "require more uses of an id");
    const bool is_alone = table.is_replicated || rows.size() == 1;
    table.rows.evict(is_alone ? excess : count_own(table, excess, std::min(excess, most), *group));
  }
}

void check_saved_rows(const std::string& table, int64_t rows, int64_t max_rows) {
  TRIREME_CHECK(max_rows == 0 || rows <= max_rows, "embedding table \"", shown(table),
                "\": the checkpoint has ", rows, " rows; expected at most ", max_rows,
                " (open_max_rows); allow more or evict old ones");
}

}  // namespace trireme::parallel::inline internal
