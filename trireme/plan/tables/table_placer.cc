#include "trireme/plan/tables/table_placer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::plan {

// A rank with more rows gets more ids and gradients and sends more vectors; it sends fewer ids and
// gets fewer vectors itself. Ids and gradients are the longer way.
RowWork::RowWork(const TableLoad& table, const TableRanks& ranks, const TableRates& rates)
    : table_(table) {
  const double near = std::min(ranks.ranks_per_node, ranks.num_ranks) - 1.0;
  const double far = ranks.num_ranks - 1.0 - near;
  const double all_peers = near / rates.near_bytes + far / rates.far_bytes;
  const double one_peer = all_peers / std::max(1.0, near + far);
  const double vector_bytes = static_cast<double>(table.width) * table.number_bytes;
  // Costs of one row. The bytes are linear in the counts.
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
  // A rank without a share gets no unused rows either.
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

namespace {

// Maximum number of ranks to try for a whole table, the least busy ones.
constexpr size_t kMaxWholeRanks = 16;
constexpr int kMaxPasses = 16;
// The work of all passes; bounds the time for thousands of tables and ranks to seconds.
constexpr double kMaxWork = 5e6;
constexpr double kMaxPairWork = 2e6;

}  // namespace

bool TablePlacer::Score::is_better_than(const Score& other) const {
  if (largest < other.largest * (1 - kPlanTolerance)) return true;
  return largest <= other.largest && total < other.total * (1 - kPlanTolerance);
}

TablePlacer::TablePlacer(std::span<const TableLoad> tables, const TableSearch& search)
    : tables_(tables), search_(search), p_(static_cast<size_t>(search.ranks.num_ranks)) {
  for (const TableLoad& table : tables) {
    work_.emplace_back(table, search.ranks, search.rates);
    largest_row_bytes_ = std::max(largest_row_bytes_, table.row_bytes(table.width));
  }
  order_.resize(tables.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::ranges::stable_sort(order_, [&](size_t a, size_t b) {
    const double work_a = work_[a].all(), work_b = work_[b].all();
    return work_a != work_b ? work_a > work_b : tables[a].bytes() > tables[b].bytes();
  });
}

TablePlan TablePlacer::place(double target) {
  if (!place_one_by_one(target)) place_by_memory();
  improve(Moves::kSingle);
  return plan_of(tables_, places_, search_);
}

TablePlan TablePlacer::improved(TablePlan plan, Moves moves) {
  places_ = std::move(plan.places);
  costs_ = std::move(plan.costs);
  improve(moves);
  return plan_of(tables_, places_, search_);
}

void TablePlacer::clear() {
  places_.assign(tables_.size(), {});
  costs_.assign(p_, {});
  add_headers(tables_.size(), search_.ranks, costs_);
  bytes_left_ = 0;
}

bool TablePlacer::place_one_by_one(double target) {
  clear();
  for (const TableLoad& table : tables_) bytes_left_ += table.bytes();
  for (const size_t t : order_) {
    bytes_left_ -= tables_[t].bytes();
    std::optional<ScoredPlace> best = best_of(t, target);
    if (!best) return false;
    put(t, std::move(best->place));
  }
  return true;
}

// The widest rows first: narrow ones fill what is left.
void TablePlacer::place_by_memory() {
  clear();
  std::vector<size_t> order = order_;
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return tables_[a].row_bytes(tables_[a].width) > tables_[b].row_bytes(tables_[b].width);
  });
  for (const size_t t : order) {
    const TableLoad& table = tables_[t];
    std::vector<int64_t> cuts =
        cuts_by_memory(table.rows, table.part_bytes(table.width), free_bytes());
    TRIREME_CHECK(!cuts.empty(), "embedding table \"", shown(table.name), "\" with ",
                  std::llround(table.bytes()),
                  " bytes does not fit what the others leave on the ranks, row by row; use more "
                  "ranks or a smaller model.width");
    put(t, {.split = TableSplit::kRows, .cuts = std::move(cuts)});
  }
}

void TablePlacer::put(size_t t, TablePlace place) {
  add_cost(tables_[t], place, search_.ranks, costs_);
  places_[t] = std::move(place);
}

std::vector<double> TablePlacer::free_bytes() const {
  std::vector<double> bytes;
  for (const RankCost& cost : costs_) bytes.push_back(search_.memory_bytes - cost.memory_bytes);
  return bytes;
}

// Scores the tables placed so far plus this one. Nothing if it does not fit, or would leave too
// little memory for the tables that follow.
std::optional<TablePlacer::Score> TablePlacer::try_place(size_t t, const TablePlace& place,
                                                         double target) const {
  std::vector<RankCost> costs = costs_;
  add_cost(tables_[t], place, search_.ranks, costs);
  Score score{.largest = target};
  double free = 0;
  for (const RankCost& cost : costs) {
    if (cost.memory_bytes > search_.memory_bytes) return std::nullopt;
    free += search_.memory_bytes - cost.memory_bytes;
    const double seconds = search_.rates.seconds(cost);
    score.largest = std::max(score.largest, seconds);
    score.total += seconds;
  }
  // Tables to come may be cut anywhere, so a rank wastes less than a row.
  if (bytes_left_ > 0 && free < bytes_left_ + static_cast<double>(p_) * largest_row_bytes_) {
    return std::nullopt;
  }
  return score;
}

std::vector<TablePlace> TablePlacer::candidates(size_t t) const {
  const TableLoad& table = tables_[t];
  std::vector<TablePlace> all;
  std::vector<size_t> ranks(p_);
  std::iota(ranks.begin(), ranks.end(), size_t{0});
  std::vector<double> busy;
  for (const size_t rank : ranks) busy.push_back(seconds(rank));
  const std::vector<double> room = free_bytes();
  std::ranges::stable_sort(ranks, [&](size_t a, size_t b) { return busy[a] < busy[b]; });
  const std::vector<size_t> by_load = ranks;
  std::erase_if(ranks, [&](size_t rank) { return room[rank] < table.bytes(); });
  ranks.resize(std::min(ranks.size(), kMaxWholeRanks));
  for (const size_t rank : ranks) {
    all.push_back({.split = TableSplit::kWhole, .rank = static_cast<int>(rank)});
  }
  all.push_back({.split = TableSplit::kRows});
  all.push_back({.split = TableSplit::kReplicated});
  if (table.may_split_columns) all.push_back({.split = TableSplit::kColumns});
  const auto add_rows = [&](std::vector<int64_t> cuts) {
    if (!cuts.empty()) all.push_back({.split = TableSplit::kRows, .cuts = std::move(cuts)});
  };
  const std::vector<double> equal(p_, 1.0);
  add_rows(cuts_by_share(work_[t], table.rows, equal));
  // Over all ranks, and over few that are less busy: each part costs something too.
  for (size_t count = p_; count > 1; count = (count + 1) / 2) {
    std::vector<double> of_least;
    for (size_t i = 0; i < count; ++i) of_least.push_back(busy[by_load[i]]);
    const std::vector<double> level = levelling_shares(of_least, work_[t].all());
    std::vector<double> shares(p_);
    for (size_t i = 0; i < count; ++i) shares[by_load[i]] = level[i];
    add_rows(cuts_by_share(work_[t], table.rows, shares));
    if (count == 2) break;
  }
  add_rows(cuts_by_memory(table.rows, table.part_bytes(table.width), room));
  return all;
}

std::optional<TablePlacer::ScoredPlace> TablePlacer::best_of(size_t t, double target) const {
  std::optional<ScoredPlace> best;
  for (TablePlace& place : candidates(t)) {
    const std::optional<Score> score = try_place(t, place, target);
    if (score && (!best || score->is_better_than(best->score))) {
      best = {std::move(place), *score};
    }
  }
  return best;
}

TablePlacer::Score TablePlacer::score() const {
  Score all;
  for (size_t rank = 0; rank < p_; ++rank) {
    all.largest = std::max(all.largest, seconds(rank));
    all.total += seconds(rank);
  }
  return all;
}

void TablePlacer::improve(Moves moves) {
  const double pass_work =
      static_cast<double>(tables_.size() * p_) * static_cast<double>(kMaxWholeRanks + 6);
  const int passes = static_cast<int>(std::clamp(kMaxWork / pass_work, 1.0, double{kMaxPasses}));
  const double pair_work = pass_work * static_cast<double>(tables_.size()) *
                           static_cast<double>(std::min(p_, kMaxWholeRanks) + 6) / 2;
  bool has_improved = true;
  for (int pass = 0; pass < passes && has_improved; ++pass) {
    has_improved = false;
    for (const size_t t : order_) has_improved |= improve(t);
    if (has_improved || moves == Moves::kSingle || pair_work > kMaxPairWork) continue;
    for (size_t i = 0; i < order_.size(); ++i) {
      for (size_t j = i + 1; j < order_.size(); ++j) {
        has_improved |= improve(order_[i], order_[j]);
      }
    }
  }
}

bool TablePlacer::improve(size_t t) {
  const Score before = score();
  const std::vector<RankCost> kept = costs_;
  take(t);
  if (auto best = best_of(t, 0); best && best->score.is_better_than(before)) {
    put(t, std::move(best->place));
    return true;
  }
  costs_ = kept;
  return false;
}

// Both tables at once, such as to exchange them.
bool TablePlacer::improve(size_t t, size_t other) {
  Score least = score();
  const std::vector<RankCost> kept = costs_;
  take(t);
  take(other);
  const std::vector<RankCost> without = costs_;
  std::optional<std::pair<TablePlace, TablePlace>> best;
  for (TablePlace& place : candidates(t)) {
    if (!try_place(t, place, 0)) continue;
    add_cost(tables_[t], place, search_.ranks, costs_);
    std::optional<ScoredPlace> second = best_of(other, 0);
    costs_ = without;
    if (!second || !second->score.is_better_than(least)) continue;
    least = second->score;
    best = {std::move(place), std::move(second->place)};
  }
  if (!best) {
    costs_ = kept;
    return false;
  }
  put(t, std::move(best->first));
  put(other, std::move(best->second));
  return true;
}

void TablePlacer::take(size_t t) {
  std::vector<RankCost> own(p_);
  add_cost(tables_[t], places_[t], search_.ranks, own);
  for (size_t rank = 0; rank < p_; ++rank) costs_[rank] -= own[rank];
}

}  // namespace trireme::plan
