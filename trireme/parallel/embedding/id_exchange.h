// Brings the ids of a batch to the ranks that hold their rows: one all-to-all for all tables.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/layout.h"
#include "trireme/parallel/embedding/jagged_ids.h"

namespace trireme::parallel {

// The distinct ids of a list, and where each occurs in it.
struct IdGroups {
  std::vector<int64_t> ids;  // [n] distinct, ascending
  std::vector<int64_t>
      first;  // [n + 1] id i occurs at places[first[i]] to places[first[i + 1] - 1]
  std::vector<int32_t> places;  // [m] by id, in one ascending

  int64_t size() const { return std::ssize(ids); }
  // [m]: for each place of the list, the number of its id.
  std::vector<int32_t> group_of_place() const;
};

// values: [m] in [0, limit), or any numbers if the limit is above 2^32; fewer than 2^31 of them
IdGroups group_ids(std::span<const int64_t> values, int64_t limit);

// The part of a table that each rank holds.
struct TableParts {
  bool is_replicated = false;
  bool is_by_columns = false;
  std::vector<mesh::Range> rows;     // [p]
  std::vector<mesh::Range> columns;  // [p]

  bool is_open = false;  // rows are then keys, and `rows` has their places
  // Each rank has a number for each row, whatever columns it has.
  bool has_row_states = false;

  TableParts(const mesh::Layout& layout, bool is_open);
  bool has_part(size_t rank) const { return rows[rank].size > 0 && columns[rank].size > 0; }
  // Whether a rank takes part in look-ups and updates of its rows.
  bool gets_ids(size_t rank) const { return has_part(rank) || has_row_states; }
  // The offset that a rank subtracts from a row number of its part.
  int64_t first_row(size_t rank) const { return is_open ? 0 : rows[rank].offset; }
  // Upper bound (exclusive) of row numbers on a rank.
  int64_t row_limit(size_t rank) const {
    return is_open ? std::numeric_limits<int64_t>::max() : rows[rank].size;
  }
};

// This rank's ids of one table.
struct OwnIds {
  IdGroups groups;
  std::vector<int32_t> sample_of_place{};  // [m] each id's sample on this rank
  std::vector<mesh::Range> asked{};  // [p] the groups whose rows, or parts of them, rank r has
  std::vector<uint64_t> subtrees{};  // [n] bit k: the id has samples in this rank's subtree k
};

// The ids of one table that another rank has for this one.
struct ArrivedIds {
  std::vector<int64_t> rows;       // of this rank's part, distinct, ascending
  std::vector<uint64_t> subtrees;  // [rows] bit k: the id has samples in the sender's subtree k
  int64_t num_sums = 0;            // bits in all of them: vectors of the gradient to come
};

class IdExchange {
 public:
  // Sorts the ids and sends them in the background. Rank 0 has the first samples of the batch, rank
  // 1 the next ones, and so on.
  // needs_gradient: gradients will travel; the same on every rank
  // Comm:       8 (tables + 1) bytes to each other rank. Then for each distinct id of a table and
  //             each other rank with a part of its row 4 bytes, or 8 if the table has more than
  //             2^31 rows or is open. With needs_gradient ceil(k / 8) more if this rank's
  //             samples lie in k > 1 subtrees. Ids of replicated tables travel only with
  //             needs_gradient.
  // Collective: every rank of the group
  IdExchange(std::span<const TableConfig> tables, std::span<const TableParts> parts,
             comm::Communicator* group, const JaggedIds& ids, bool needs_gradient);
  // Waits for the ids of the others.
  void finish();

  bool needs_gradient() const { return needs_gradient_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  const OwnIds& own(size_t table) const { return own_[table]; }
  // Empty for this rank itself.
  const ArrivedIds& arrived(size_t rank, size_t table) const { return arrived_[rank][table]; }
  // The beginnings of the subtrees that a rank's samples lie in; see sample_tree.h.
  const std::vector<int64_t>& subtrees(size_t rank) const { return subtrees_[rank]; }
  // Bytes that `sender` sends per id of a table, and for the counts of its ids of all tables.
  int64_t bytes_of_id(size_t sender, size_t table) const;
  static int64_t count_bytes(size_t num_tables) {
    return static_cast<int64_t>((num_tables + 1) * sizeof(int64_t));
  }
  // The number of this rank's first sample among those of all ranks.
  int64_t first_sample() const { return first_sample_; }

 private:
  void group_own(std::span<const TableConfig> tables, std::span<const TableParts> parts,
                 const JaggedIds& ids);
  void exchange_counts(const JaggedIds& ids);
  void mark_subtrees(int64_t num_samples);
  void send();
  bool travels(size_t table, size_t rank) const;

  comm::Communicator* group_;
  int rank_, size_;
  bool needs_gradient_;
  std::vector<bool> is_replicated_;
  std::vector<int64_t> id_bytes_;                 // [tables]
  std::vector<int64_t> first_row_;                // [tables * p] of each rank's part
  std::vector<OwnIds> own_;                       // [tables]
  std::vector<std::vector<ArrivedIds>> arrived_;  // [p][tables]
  std::vector<std::vector<int64_t>> subtrees_;    // [p]
  int64_t first_sample_ = 0;

  // In transit.
  std::vector<at::Tensor> sent_, arriving_;  // [p] bytes
  comm::WorkPtr work_;
};

}  // namespace trireme::parallel
