#include "trireme/plan/tables/table_cost.h"

#include <algorithm>
#include <bit>

#include "trireme/base/error.h"

namespace trireme::plan {

// Costs are sums over tables, so a search can move one without the others. A rank has two parts in
// each table: as owner it reads rows and adds gradients for all users, as user it sends ids and
// gradients and gets vectors. Ranks that use a table differently are counted in pairs; for those
// that use it alike add_alike() has the same sums in a time proportional to the ranks. Bytes within
// a node and between nodes are kept apart, because their links have different rates.

namespace {

// A row that is read out of order costs about one more line of the cache.
constexpr double kRowBytes = 64;
// Copying rows, merging gradients and updating: loops that a rank starts for each of its parts.
// `embedding_lookup_benchmark`: 12 to 29 us for each part beyond the first (2 cores, AMD EPYC).
constexpr double kLoopsPerPart = 3;

size_t node_of(const TableRanks& ranks, int rank) {
  return static_cast<size_t>(rank / ranks.ranks_per_node);
}
size_t num_nodes(const TableRanks& ranks) { return node_of(ranks, ranks.num_ranks - 1) + 1; }
// The other ranks of its node.
int num_near(const TableRanks& ranks, int rank) {
  const int node_begin = rank / ranks.ranks_per_node * ranks.ranks_per_node;
  return std::min(ranks.ranks_per_node, ranks.num_ranks - node_begin) - 1;
}

// Into how many subtrees of a row's columns some of them fall: ranges whose size is a power of two
// and divides their beginning.
double num_subtrees(int64_t begin, int64_t end) {
  double count = 0;
  for (; begin < end; ++count) {
    const auto longest = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(end - begin)));
    const int64_t aligned = begin & -begin;
    begin += aligned == 0 ? longest : std::min(aligned, longest);
  }
  return count;
}

class CostAdder {
 public:
  CostAdder(const TableLoad& table, const TablePlace& place, const TableRanks& ranks,
            std::span<RankCost> costs)
      : table_(table),
        ranks_(ranks),
        costs_(costs),
        is_replicated_(place.split == TableSplit::kReplicated),
        sums_squares_(place.split == TableSplit::kColumns && table.sums_squares) {
    for (int rank = 0; rank < ranks.num_ranks; ++rank) {
      parts_.push_back(part_of(table, place, ranks.num_ranks, rank));
    }
  }

  void add() {
    for (int rank = 0; rank < ranks_.num_ranks; ++rank) add_part(rank);
    if (sums_squares_) add_squares();
    if (table_.use.size() == 1) {
      add_alike();
    } else {
      for (int owner = 0; owner < ranks_.num_ranks; ++owner) {
        for (int user = 0; user < ranks_.num_ranks; ++user) add_use(user, owner);
      }
    }
  }

 private:
  struct Bytes {
    double to_owner = 0, from_owner = 0;
  };

  RankCost& cost(int rank) { return costs_[static_cast<size_t>(rank)]; }
  const TablePart& part(int rank) const { return parts_[static_cast<size_t>(rank)]; }
  double vector_bytes(int owner) const {
    return static_cast<double>(part(owner).width) * table_.number_bytes;
  }
  // With sums_squares_ even a rank without columns keeps a number for each row.
  bool has_part(int rank) const {
    return part(rank).num_rows > 0 && (part(rank).width > 0 || sums_squares_);
  }
  RowCounts counts(int user, int owner) const {
    const TablePart& of_owner = part(owner);
    if (!has_part(owner)) return {};
    return table_.use_of(user).in(of_owner.first_row, of_owner.first_row + of_owner.num_rows);
  }
  bool is_near(int a, int b) const { return node_of(ranks_, a) == node_of(ranks_, b); }

  // The memory of the rank's part, and its updates.
  void add_part(int rank) {
    const TablePart& own = part(rank);
    if (!has_part(rank)) return;
    RankCost& of_rank = cost(rank);
    of_rank.memory_bytes += static_cast<double>(own.num_rows) * table_.part_bytes(own.width);
    of_rank.parts += 1;
    const double updated = counts(rank, rank).updated;
    of_rank.rows_updated += updated;
    // Weights and states are read and written.
    of_rank.touched_bytes += updated * (kRowBytes + 2 * table_.row_bytes(own.width));
  }

  Bytes bytes_of(int user, int owner) const {
    const RowCounts used = counts(user, owner);
    const int64_t subtrees = table_.use_of(user).subtrees();
    const int64_t set_bytes = subtrees > 1 ? (subtrees + 7) / 8 : 0;
    const double id_bytes = table_.rows <= int64_t{1} << 31 ? 4 : 8;
    return {used.distinct * (id_bytes + static_cast<double>(set_bytes)) +
                used.sums * vector_bytes(owner),
            is_replicated_ ? 0 : used.distinct * vector_bytes(owner)};
  }

  // The traffic between each pair of ranks for the rows that all ranks together use.
  void add_squares() {
    std::vector<double> of_rank, of_node(num_nodes(ranks_));
    double all = 0;
    for (int rank = 0; rank < ranks_.num_ranks; ++rank) {
      const TablePart& own = part(rank);
      of_rank.push_back(counts(rank, rank).updated * table_.number_bytes *
                        num_subtrees(own.first_column, own.first_column + own.width));
      of_node[node_of(ranks_, rank)] += of_rank.back();
      all += of_rank.back();
    }
    for (int rank = 0; rank < ranks_.num_ranks; ++rank) {
      const double own = of_rank[static_cast<size_t>(rank)];
      const double node = of_node[node_of(ranks_, rank)];
      const int near = num_near(ranks_, rank);
      RankCost& cost_of_rank = cost(rank);
      cost_of_rank.sent_near += near * own;
      cost_of_rank.sent_far += (ranks_.num_ranks - 1 - near) * own;
      cost_of_rank.received_near += node - own;
      cost_of_rank.received_far += all - node;
    }
  }

  // The owner's work when `readers` ranks read the rows and `senders` ranks send gradients.
  void add_work(int owner, const RowCounts& used, double readers, double senders) {
    RankCost& of_owner = cost(owner);
    const double read = readers * used.distinct, added = senders * used.sums;
    of_owner.rows_read += read;
    of_owner.gradients_added += added;
    of_owner.touched_bytes += (read + added) * (kRowBytes + vector_bytes(owner));
  }

  void add_use(int user, int owner) {
    add_work(owner, counts(user, owner), is_replicated_ && user != owner ? 0 : 1, 1);
    if (user == owner) return;
    const Bytes bytes = bytes_of(user, owner);
    const bool near = is_near(user, owner);
    RankCost &of_user = cost(user), &of_owner = cost(owner);
    (near ? of_user.sent_near : of_user.sent_far) += bytes.to_owner;
    (near ? of_user.received_near : of_user.received_far) += bytes.from_owner;
    (near ? of_owner.sent_near : of_owner.sent_far) += bytes.from_owner;
    (near ? of_owner.received_near : of_owner.received_far) += bytes.to_owner;
  }

  // The same as add_use() for each pair, in time proportional to the ranks.
  void add_alike() {
    const int p = ranks_.num_ranks;
    std::vector<Bytes> of_node(num_nodes(ranks_));
    std::vector<Bytes> of_owner(static_cast<size_t>(p));
    Bytes all;
    for (int owner = 0; owner < p; ++owner) {
      const Bytes bytes = bytes_of(owner, owner);
      of_owner[static_cast<size_t>(owner)] = bytes;
      Bytes& node = of_node[node_of(ranks_, owner)];
      node.to_owner += bytes.to_owner;
      node.from_owner += bytes.from_owner;
      all.to_owner += bytes.to_owner;
      all.from_owner += bytes.from_owner;
      add_work(owner, counts(owner, owner), is_replicated_ ? 1 : p, p);
    }
    for (int rank = 0; rank < p; ++rank) {
      const int near = num_near(ranks_, rank), far = p - 1 - near;
      const Bytes& own = of_owner[static_cast<size_t>(rank)];
      const Bytes& node = of_node[node_of(ranks_, rank)];
      RankCost& of_rank = cost(rank);
      of_rank.sent_near += node.to_owner - own.to_owner + near * own.from_owner;
      of_rank.sent_far += all.to_owner - node.to_owner + far * own.from_owner;
      of_rank.received_near += node.from_owner - own.from_owner + near * own.to_owner;
      of_rank.received_far += all.from_owner - node.from_owner + far * own.to_owner;
    }
  }

  const TableLoad& table_;
  const TableRanks& ranks_;
  std::span<RankCost> costs_;
  bool is_replicated_;
  bool sums_squares_;
  std::vector<TablePart> parts_;
};

}  // namespace

int64_t even_cut(int64_t length, int count, int r) {
  return r * (length / count) + std::min<int64_t>(r, length % count);
}

RankCost& RankCost::add(const RankCost& other, double factor) {
  memory_bytes += factor * other.memory_bytes;
  rows_read += factor * other.rows_read;
  gradients_added += factor * other.gradients_added;
  rows_updated += factor * other.rows_updated;
  touched_bytes += factor * other.touched_bytes;
  parts += factor * other.parts;
  sent_near += factor * other.sent_near;
  sent_far += factor * other.sent_far;
  received_near += factor * other.received_near;
  received_far += factor * other.received_far;
  return *this;
}

double TableRates::seconds(const RankCost& cost) const {
  return std::max(cost.sent_near, cost.received_near) / near_bytes +
         std::max(cost.sent_far, cost.received_far) / far_bytes +
         cost.touched_bytes / memory_bytes + cost.parts * part_seconds;
}

TableRates rates_of(const Cluster& cluster) {
  const Device& device = cluster.device;
  return {.near_bytes = device.link_rate * device.link_share,
          .far_bytes = device.network_rate * device.network_share,
          .memory_bytes = device.memory_rate * device.memory_share,
          .part_seconds = kLoopsPerPart * device.launch_seconds};
}

TablePart part_of(const TableLoad& table, const TablePlace& place, int num_ranks, int rank) {
  const auto range = [&](int64_t length) {
    const int64_t begin = even_cut(length, num_ranks, rank);
    return std::pair(begin, even_cut(length, num_ranks, rank + 1) - begin);
  };
  switch (place.split) {
    case TableSplit::kReplicated: return {0, table.rows, table.width};
    case TableSplit::kWhole: return {0, rank == place.rank ? table.rows : 0, table.width};
    case TableSplit::kColumns: {
      const auto [first, count] = range(table.width);
      return {0, table.rows, count, first};
    }
    case TableSplit::kRows: break;
  }
  if (place.cuts.empty()) {
    const auto [first, count] = range(table.rows);
    return {first, count, table.width};
  }
  const auto r = static_cast<size_t>(rank);
  return {place.cuts[r], place.cuts[r + 1] - place.cuts[r], table.width};
}

void add_cost(const TableLoad& table, const TablePlace& place, const TableRanks& ranks,
              std::span<RankCost> costs) {
  CostAdder(table, place, ranks, costs).add();
}

void add_headers(size_t num_tables, const TableRanks& ranks, std::span<RankCost> costs) {
  const double bytes = 8 * (static_cast<double>(num_tables) + 1);
  for (int rank = 0; rank < ranks.num_ranks; ++rank) {
    const int near = num_near(ranks, rank), far = ranks.num_ranks - 1 - near;
    RankCost& cost = costs[static_cast<size_t>(rank)];
    cost.sent_near += near * bytes;
    cost.received_near += near * bytes;
    cost.sent_far += far * bytes;
    cost.received_far += far * bytes;
  }
}

}  // namespace trireme::plan
