#include "trireme/parallel/embedding/remote_table.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::parallel {
namespace {

// Share [offset, offset + size) of one of a table's tensors.
class RemotePart : public StoredRows {
 public:
  RemotePart(std::shared_ptr<RemoteRows> rows, size_t table, size_t tensor, int64_t offset)
      : rows_(std::move(rows)), table_(table), tensor_(tensor), offset_(offset) {}

  at::Tensor read(int64_t begin, int64_t end) override {
    return rows_->read(table_, tensor_, offset_ + begin, offset_ + end);
  }
  at::Tensor read(std::span<const int64_t> rows) override {
    std::vector<at::Tensor> each;
    for (const int64_t row : rows) each.push_back(read(row, row + 1));
    return at::cat(each);
  }
  void write(int64_t begin, const at::Tensor& values) override {
    rows_->write(table_, tensor_, offset_ + begin, values);
  }
  std::vector<mesh::Range> wanted_rows(int64_t num_rows) const override {
    std::vector<mesh::Range> wanted;
    for (const mesh::Range& range : rows_->wanted_rows(table_)) {
      const int64_t begin = std::max<int64_t>(range.offset - offset_, 0);
      const int64_t end = std::min(range.offset + range.size - offset_, num_rows);
      if (begin < end) wanted.push_back({begin, end - begin});
    }
    return wanted;
  }

 private:
  std::shared_ptr<RemoteRows> rows_;
  size_t table_, tensor_;
  int64_t offset_;
};

}  // namespace

RemoteTable::RemoteTable(std::shared_ptr<RemoteRows> rows, size_t number, const TableConfig& config)
    : rows_(std::move(rows)), number_(number) {
  TRIREME_CHECK(config.memory_bytes == 0 && !config.is_open, "embedding table \"",
                shown(config.name), "\" ",
                config.is_open ? "has an open vocabulary" : "has a memory limit",
                ", and its rows are on parameter servers, which keep numbered rows in memory; use "
                "one or the other");
}

void RemoteTable::fetch(std::span<const int64_t> rows, const at::Tensor& weights,
                        RowOptimizer& optimizer, std::vector<int64_t>& slots) {
  const auto count = std::ssize(rows);
  // Doubled, so that a step with many look-ups resizes seldom.
  if (num_slots_ + count > weights.size(0)) {
    rows_->wait_pulled();  // into the memory that moves
    optimizer.resize(std::max(num_slots_ + count, 2 * weights.size(0)));
  }
  slots.resize(rows.size());
  std::iota(slots.begin(), slots.end(), num_slots_);
  // Only asked for. wait_pulled() waits for all tables at once.
  rows_->pull(number_, rows, weights.narrow(0, num_slots_, count));
  num_slots_ += count;
}

std::vector<TableTensor> RemoteTable::state(const TableConfig& config, const at::Tensor& weights,
                                            const RowOptimizer& optimizer) const {
  const auto [rank, count] = rows_->saved_share();
  std::vector<std::pair<std::string, at::Tensor>> all{{config.name + ".weight", weights}};
  for (const RowState& state : optimizer.states()) {
    all.emplace_back(state.name + "." + config.name + ".weight", state.values);
  }
  std::vector<TableTensor> tensors;
  for (const auto& [name, slots] : all) {
    std::vector<int64_t> shape = slots.sizes().vec();
    shape[0] = config.rows;
    const mesh::Layout layout(shape, {{"data", count}}, {mesh::Placement::sharded(0)});
    const mesh::Box box = layout.local_box(rank);
    tensors.push_back(
        {.name = name,
         .local = at::empty(box.size, slots.options().device(at::kMeta)),
         .layout = layout,
         .rank = rank,
         .stored = std::make_shared<RemotePart>(rows_, number_, tensors.size(), box.offset[0])});
  }
  return tensors;
}

}  // namespace trireme::parallel
