// What becomes of the summed gradients of rows: they update the rows at once, or are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/parallel/embedding/table_look_up.h"

namespace trireme::parallel::inline internal {

class UpdateRows : public GradientSink {
 public:
  explicit UpdateRows(TableGroup& group) : group_(group) {}
  void begin(size_t table, std::span<const int64_t> rows) override;
  void take(size_t table, int64_t first, std::span<const int64_t> rows, const void* sums) override;

 private:
  TableGroup& group_;
  std::vector<int64_t> memory_;
  std::span<const int64_t> slots_;  // of the rows in begin()
};

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

// The rows of both; where both have a row, a + b.
RowGradients sum_of(const RowGradients& a, const RowGradients& b, bool is_open);

}  // namespace trireme::parallel::inline internal
