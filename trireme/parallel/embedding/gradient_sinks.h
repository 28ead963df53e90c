// Destinations of the summed gradients of rows: they update the rows at once, or are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/parallel/embedding/table_look_up.h"

namespace trireme::parallel {

class StoreSums : public GradientSink {
 public:
  explicit StoreSums(const TableGroup& group) : group_(group), stored_(group.tables.size()) {}
  void begin(size_t table, std::span<const int64_t> rows) override;
  void take(size_t table, int64_t first, std::span<const int64_t> rows, const void* sums) override;
  std::vector<RowGradients> stored() { return std::move(stored_); }

 private:
  const TableGroup& group_;
  std::vector<RowGradients> stored_;
};

// Rows split by columns wait for finish() if the update rule needs their mean squares.
class UpdateRows : public GradientSink {
 public:
  explicit UpdateRows(TableGroup& group) : group_(group), waiting_(group) {}
  void begin(size_t table, std::span<const int64_t> rows) override;
  void take(size_t table, int64_t first, std::span<const int64_t> rows, const void* sums) override;
  // Comm, Collective: as update_rows()
  void finish(TableCounts& counts);

 private:
  TableGroup& group_;
  std::vector<int64_t> memory_;
  std::span<const int64_t> slots_;  // of the rows in begin()
  StoreSums waiting_;
};

// Updates rows from their summed gradients times `factor`.
// gradients: of each table; tables without `rows` do not change. counts: gets the bytes
// Comm:       see gather_squares(), to each rank, if a table's updates need it; otherwise nothing
// Collective: every rank
void update_rows(TableGroup& group, std::span<const RowGradients> gradients, double factor,
                 TableCounts& counts);

// EmbeddingTables::gradient_squares()
std::vector<at::Tensor> row_squares(const TableGroup& group,
                                    std::span<const RowGradients> gradients);

// The rows of both; where both have a row, a + b.
RowGradients sum_of(const RowGradients& a, const RowGradients& b, bool is_open);

}  // namespace trireme::parallel
