// One look-up in all tables: ids go to the ranks that have the rows, vectors come back, and
// gradients go the way of the ids.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/embedding/embedding_table.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/parallel/embedding/id_exchange.h"
#include "trireme/parallel/embedding/row_gradients.h"
#include "trireme/parallel/embedding/rows/stored_rows.h"

namespace trireme::parallel {

// The tables of a group of ranks. All have the same dtype.
struct TableGroup {
  std::vector<EmbeddingTable> tables;
  std::vector<TableConfig> configs;  // of each table
  std::vector<TableParts> parts;     // of each table
  comm::Communicator* group = nullptr;
  at::ScalarType dtype = at::kFloat;
  bool symmetric = true;
  std::shared_ptr<RemoteRows> remote{};  // null: the rows are here
  int64_t num_columns = 0;               // W
  // The place of each table's vectors: the index of finish()'s tensor, and the first column.
  std::vector<size_t> outputs;
  std::vector<int64_t> columns;

  size_t rank() const { return group == nullptr ? 0 : static_cast<size_t>(group->rank()); }
};

// Receives the summed gradients of this rank's rows, table by table.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // rows: those of the table's part that got a gradient, distinct, ascending
  virtual void begin(size_t table, std::span<const int64_t> rows) = 0;
  // sums: [rows, width] of the dtype, for some of those rows, `first` being the first one's place
  // among them. Several calls run at once.
  virtual void take(size_t table, int64_t first, std::span<const int64_t> rows,
                    const void* sums) = 0;
};

class TableLookUp {
 public:
  // Sends the ids; see IdExchange.
  TableLookUp(std::shared_ptr<TableGroup> tables, JaggedIds ids, bool needs_gradient);

  // Waits for the ids, and lets tables on a disk or on servers read the rows that finish() will
  // want.
  void prefetch();
  // The pooled tables' vectors side by side, [B, W], then [n_t, width] of each table with kNone.
  std::vector<at::Tensor> finish();
  // gradients: like what finish() returned
  void backward(std::span<const at::Tensor> gradients, GradientSink& sink);
  // Whether the ids' weights get a gradient.
  bool has_weight_gradient() const { return has_weight_gradient_; }
  const at::Tensor& weights() const { return ids_.weights; }
  // [n] that gradient: zeros where a table reads no weights.
  at::Tensor weight_gradient(std::span<const at::Tensor> gradients) const;
  // Adds this look-up, backward included.
  void count(TableCounts& counts) const;

 private:
  template <typename scalar>
  std::vector<at::Tensor> finish_rows();
  // blocks: [p * tables] where the vectors from each rank for each table begin
  template <typename scalar>
  std::vector<at::Tensor> fetch_vectors(std::vector<const scalar*>& blocks);
  // Brings the rows into memory and up to date that this rank reads for any rank.
  void fetch_rows();
  // The rows of this rank's part that rank r wants, ascending.
  std::vector<int64_t> wanted_rows(size_t rank, size_t table) const;
  // The slots of these rows.
  std::span<const int64_t> slots_for(size_t rank, size_t table) const {
    return slots_[rank * num_tables() + table].slots;
  }
  template <typename scalar>
  void pool_table(size_t table, std::span<const scalar* const> arrived, at::Tensor& out);
  // Copies some columns of the distinct ids' rows to weighted_rows_.
  // rows: [n] where these columns begin
  template <typename scalar>
  void keep_rows(size_t table, mesh::Range columns, std::span<const scalar* const> rows);
  template <typename scalar>
  RowTerms<scalar> own_terms(size_t table, std::span<const at::Tensor> gradients) const;
  template <typename scalar>
  void send_back(std::span<const at::Tensor> gradients, GradientSink& sink);
  template <typename scalar>
  std::vector<at::Tensor> send_sums(std::span<const RowTerms<scalar>> terms);
  template <typename scalar>
  void sum_table(size_t table, const RowTerms<scalar>& own, std::span<const scalar* const> arrived,
                 GradientSink& sink);
  // All-to-all of blocks of numbers. fill(rank, out) writes what goes to a rank.
  template <typename scalar, typename Fill>
  std::vector<at::Tensor> exchange(std::span<const int64_t> sent, std::span<const int64_t> received,
                                   const Fill& fill);

  size_t num_tables() const { return tables_->tables.size(); }
  size_t self() const { return static_cast<size_t>(ids_exchange_.rank()); }
  size_t num_ranks() const { return static_cast<size_t>(ids_exchange_.size()); }
  int64_t width_on(size_t rank, size_t table) const {
    return tables_->parts[table].columns[rank].size;
  }

  struct FetchedRows {
    std::vector<int64_t> rows{};    // of this rank's part, ascending
    std::vector<int64_t> memory{};  // the slots, unless they are the rows
    std::span<const int64_t> slots{};
  };

  std::shared_ptr<TableGroup> tables_;
  JaggedIds ids_;  // those of open tables are keys
  IdExchange ids_exchange_;
  std::vector<FetchedRows> slots_;  // [p * tables], while finish() runs
  bool has_weight_gradient_;
  // With it, as finish() has read them: [n, width] for the distinct ids of each weighted table.
  std::vector<at::Tensor> weighted_rows_;
};

}  // namespace trireme::parallel
