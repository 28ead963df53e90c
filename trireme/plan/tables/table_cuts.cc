#include "trireme/plan/tables/table_cuts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trireme::plan::inline internal {

// A rank with more rows gets more ids and gradients and sends more vectors; it sends fewer ids and
// gets fewer vectors itself. Ids and gradients are the longer way.
RowWork::RowWork(const TableLoad& table, const TableRanks& ranks, const TableRates& rates)
    : table_(table) {
  const double near = std::min(ranks.ranks_per_node, ranks.num_ranks) - 1.0;
  const double far = ranks.num_ranks - 1.0 - near;
  const double all_peers = near / rates.near_bytes + far / rates.far_bytes;
  const double one_peer = all_peers / std::max(1.0, near + far);
  const double vector_bytes = static_cast<double>(table.width) * table.number_bytes;
  // Of one row; the bytes of cost are linear in the counts.
  RankCost read, added, updated;
  const double p = ranks.num_ranks;
  TableLoad one{.rows = 1,
                .width = table.width,
                .number_bytes = table.number_bytes,
                .states_per_number = table.states_per_number,
                .bytes_per_row = table.bytes_per_row};
  const TableRanks alone;
  const auto touched = [&](const RowCounts& counts) {
    one.use = {RowUse::even(1, counts)};
    RankCost cost;
    add_cost(one, {.split = TableSplit::kWhole}, alone, {&cost, 1});
    return cost.touched_bytes / rates.memory_bytes;
  };
  constexpr double kIdBytes = 4;
  distinct_seconds_ = p * touched({.distinct = 1}) + kIdBytes * all_peers - vector_bytes * one_peer;
  sums_seconds_ = p * touched({.sums = 1}) + vector_bytes * all_peers;
  updated_seconds_ = touched({.updated = 1});
}

double RowWork::before(int64_t row) const {
  RowCounts used;
  for (const RowUse& of_rank : table_.use) used += of_rank.in(0, row);
  used = used * (1 / static_cast<double>(table_.use.size()));
  return used.distinct * distinct_seconds_ + used.sums * sums_seconds_ +
         used.updated * updated_seconds_;
}

int64_t RowWork::row_at(double seconds) const {
  int64_t low = 0, high = table_.rows;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (before(middle) < seconds) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

std::vector<int64_t> cuts_by_share(const RowWork& work, int64_t rows,
                                   std::span<const double> shares) {
  const double all = std::reduce(shares.begin(), shares.end());
  std::vector<int64_t> cuts{0};
  double sum = 0;
  for (const double share : shares) {
    sum += share;
    // The cut is before or after the row in which the share ends, whichever is nearer.
    const double wanted = work.all() * sum / all;
    const int64_t row = work.row_at(wanted);
    const bool is_nearer = row > 0 && wanted - work.before(row - 1) < work.before(row) - wanted;
    cuts.push_back(std::max(cuts.back(), is_nearer ? row - 1 : row));
  }
  cuts.back() = rows;
  // A rank without a share gets no rows that nobody uses, either.
  for (size_t r = shares.size(); r-- > 0 && shares[r] <= 0;) cuts[r] = rows;
  return cuts;
}

std::vector<double> levelling_shares(std::span<const double> seconds, double work_seconds) {
  std::vector<double> sorted(seconds.begin(), seconds.end());
  std::ranges::sort(sorted);
  double level = 0, sum = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    sum += sorted[i];
    level = (work_seconds + sum) / static_cast<double>(i + 1);
    if (i + 1 < sorted.size() && level <= sorted[i + 1]) break;
  }
  std::vector<double> shares;
  for (const double of_rank : seconds) shares.push_back(std::max(0.0, level - of_rank));
  if (std::ranges::all_of(shares, [](double share) { return share <= 0; })) {
    std::ranges::fill(shares, 1.0);  // nothing to share out
  }
  return shares;
}

std::vector<int64_t> cuts_by_memory(int64_t rows, double row_bytes,
                                    std::span<const double> free_bytes) {
  std::vector<int64_t> room;
  for (const double bytes : free_bytes) {
    const double fits = std::floor(std::max(0.0, bytes) / row_bytes);
    room.push_back(fits < static_cast<double>(rows) ? static_cast<int64_t>(fits) : rows);
  }
  double all = 0;
  for (const int64_t fits : room) all += static_cast<double>(fits);
  std::vector<int64_t> counts;
  int64_t left = rows;
  for (const int64_t fits : room) {
    const double share = std::floor(static_cast<double>(rows) * static_cast<double>(fits) / all);
    counts.push_back(std::min(fits, all > 0 ? static_cast<int64_t>(share) : 0));
    left -= counts.back();
  }
  std::vector<int64_t> cuts{0};
  for (size_t r = 0; r < room.size(); ++r) {
    const int64_t more = std::clamp<int64_t>(left, 0, room[r] - counts[r]);
    left -= more;
    cuts.push_back(cuts.back() + counts[r] + more);
  }
  return left == 0 ? cuts : std::vector<int64_t>{};
}

}  // namespace trireme::plan::inline internal
