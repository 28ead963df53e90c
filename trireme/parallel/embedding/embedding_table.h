// This rank's part of one embedding table, with its optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/parallel/embedding/row_optimizer.h"
#include "trireme/parallel/embedding/rows/stored_rows.h"
#include "trireme/parallel/embedding/table_config.h"

namespace trireme::parallel {

class RemoteRows;

class DiskRows;
class OpenRows;
class RemoteTable;
class TouchedRows;
// A tensor of a table as a checkpoint keeps it.
struct TableTensor {
  std::string name;  // "<table>.weight", or "<state>.<table>.weight"
  // This rank's box of the layout; filled in place by a load. With `stored` a meta tensor.
  at::Tensor local;
  mesh::Layout layout;  // [rows, width], or [rows] for one number per row
  int rank = 0;         // this rank's index in the layout
  // Set if the rows are on a disk or on parameter servers.
  std::shared_ptr<StoredRows> stored{};
  // Tells which rows steps have changed; null: any may have. After other changes, such as a load,
  // set_num_steps() makes it forget.
  std::shared_ptr<TouchedRows> touched{};
};

// The first values of rows [begin, end) of a table whose vocabulary is not open: [end - begin,
// width]. See InitialRows.
// dtype: fp32 or fp64
at::Tensor initial_rows(const TableConfig& config, c10::ScalarType dtype, uint64_t seed,
                        int64_t begin, int64_t end);

// A tensor for each of the rows that an open vocabulary has, and for each of the ids that wait.
struct OpenTensor {
  std::string name;
  at::Tensor values;                     // with `stored` a meta tensor
  std::shared_ptr<StoredRows> stored{};  // set if the rows are on a disk
};
struct OpenTensors {
  // "<table>.ids", "<table>.last_uses", then as TableTensor has them, then "<table>.uses" if the
  // rarest rows are evicted
  std::vector<OpenTensor> rows{};
  // "<table>.waiting_ids", "<table>.waiting_last_uses", "<table>.waiting_uses"
  std::vector<OpenTensor> waiting{};
};

class EmbeddingTable {
 public:
  // Initial values are those of initial_rows().
  // dtype: fp32 or fp64, of the rows and of what is summed from them
  // Throws: ConfigError when config.folder cannot be written or has too little room
  EmbeddingTable(const TableConfig& config, const mesh::Axis& axis, int rank, c10::ScalarType dtype,
                 uint64_t seed, const RowOptimizerConfig& optimizer);
  // The table over remote rows whose number is `number`. It has memory for the rows of one look-up,
  // and no layout.
  // optimizer: the one that their owner applies
  // Throws: ConfigError for a memory limit, an open vocabulary and kAdam
  EmbeddingTable(const TableConfig& config, c10::ScalarType dtype,
                 const RowOptimizerConfig& optimizer, std::shared_ptr<RemoteRows> rows,
                 size_t number);
  ~EmbeddingTable();
  EmbeddingTable(EmbeddingTable&&) noexcept;
  EmbeddingTable& operator=(EmbeddingTable&&) noexcept;

  const TableConfig& config() const { return config_; }
  const mesh::Layout& layout() const { return layout_; }
  // [slots, width]. A row's slot is its number in this rank's box, unless rows are on a disk or
  // remote, or the vocabulary is open.
  const at::Tensor& weights() const { return weights_; }
  // The optimizer of the slots.
  RowOptimizer& optimizer() { return *optimizer_; }
  // Whether updates need the mean squares of whole rows that are split over ranks: with
  // kRowWiseAdaGrad and a split by columns. Then each rank keeps the state of every row, even one
  // without columns.
  bool needs_mean_squares() const { return needs_mean_squares_; }

  // The slots of `rows`: ascending, distinct numbers in this rank's box, or keys of an open
  // vocabulary. Keys without a row get a slot with their first values. Rows stay in their slots
  // until release(). memory: where the slots are put if they are not the rows themselves Remote
  // rows are in their slots only after RemoteRows::wait_pulled().
  // Throws: ConfigError when too many rows are wanted at once; Error when the disk fails. The table
  //         is of no use afterwards.
  std::span<const int64_t> fetch(std::span<const int64_t> rows, std::vector<int64_t>& memory);
  // The same for rows whose gradients have come: in an open vocabulary they come to be in this
  // step. The slots of those that do not yet are given back by release().
  std::span<const int64_t> fetch_used(std::span<const int64_t> rows, std::vector<int64_t>& memory);
  void release();
  // A step has changed these rows, which are in these slots. Any thread.
  void mark_changed(std::span<const int64_t> rows, std::span<const int64_t> slots);
  // Whether prefetch() does something.
  bool reads_ahead() const { return disk_ != nullptr || remote_ != nullptr; }
  // Announces a later fetch() of these rows.
  void prefetch(std::span<const int64_t> rows);

  // Bytes of rows and states in memory.
  int64_t memory_bytes() const { return weights_.size(0) * optimizer_->image_bytes(); }
  // The share of fetch() so far that found its row in memory; 1 without a disk.
  double hit_rate() const;

  // The weights and the optimizer's states, which share memory with the table. Rows are caught up
  // first. None of an open vocabulary, which has open_tensors().
  std::vector<TableTensor> state();
  void set_num_steps(int64_t num_steps);

  // This rank's rows of an open vocabulary, and the ids that wait for one, by rising key. Copies,
  // but for rows on a disk.
  OpenTensors open_tensors();
  // The same tensors without any row or id, for their names, widths and dtypes.
  OpenTensors open_tensor_kinds() const;
  // Tensors to fill with this many rows and ids. Rows on a disk are dropped now, but not their ids,
  // so load_open_tensors() must follow before the table is used.
  OpenTensors open_tensors_to_load(int64_t num_rows, int64_t num_waiting);
  // tensors: like open_tensors() of any rank, with keys of this rank's part; states that are
  // undefined begin anew, and undefined uses are one of each row. set_num_steps() must follow.
  void load_open_tensors(const OpenTensors& tensors);
  // Drops the rows that have expired after the last step.
  void expire_rows();
  // The keys that have rows; null unless the vocabulary is open.
  OpenRows* open_rows();

 private:
  struct Open;
  // Part of a row: the weights, or the optimizer's state number `tensor - 1`.
  std::shared_ptr<StoredRows> stored(size_t tensor,
                                     std::shared_ptr<const std::vector<int64_t>> numbers = {});
  const at::Tensor& values_of(size_t tensor) const;
  void catch_up_all();
  void mark_slots(std::span<const int64_t> slots);

  TableConfig config_;
  mesh::Layout layout_;
  int rank_;
  bool needs_mean_squares_ = false;
  at::Tensor weights_;
  std::unique_ptr<RowOptimizer> optimizer_;
  std::shared_ptr<DiskRows> disk_;  // null: all rows are in memory
  // Null with kAdam, where every row may change at a save.
  std::shared_ptr<TouchedRows> touched_;
  std::unique_ptr<Open> open_;           // null: rows have numbers
  std::unique_ptr<RemoteTable> remote_;  // null: the rows are here
};

}  // namespace trireme::parallel
