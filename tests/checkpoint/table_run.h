// One rank of a run with a table of which a step changes some rows, and that tells which.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tests/checkpoint/saved_tensors.h"
#include "tests/harness/draw.h"
#include "trireme/checkpoint/write/saver.h"

namespace trireme::checkpoint {

struct TableShape {
  int64_t rows = 70'000;  // 4.5 MB
  int64_t width = 16;
  bool has_row_state = false;  // one number for each row
};

class TableRun {
 public:
  TableRun(int ranks, int rank, const mesh::Placement& placement, const TableShape& shape = {})
      : rank_(rank) {
    const std::vector<mesh::Axis> axes{{"data", ranks}};
    add("table.weight", random_tensor("table", {shape.rows, shape.width}, at::kInt),
        {{shape.rows, shape.width}, axes, {placement}});
    if (shape.has_row_state)
      add("table.sum", random_tensor("sum", {shape.rows}, at::kInt),
          {{shape.rows}, axes, {placement}});
    add("dense", at::zeros({600}, at::kInt), {{600}, axes, {mesh::Placement::sharded(0)}});
    last_touched_ = std::make_shared<std::vector<int64_t>>(shape.rows, 0);
  }

  // Adds `number` to these rows, and to all that is dense.
  void touch(const std::vector<int64_t>& rows, int64_t number = 1) {
    for (size_t i = 0; i < globals_.size(); ++i) {
      Global& global = globals_[i];
      const bool is_dense = global.name == "dense";
      if (is_dense) {
        global.tensor.add_(number);
      } else {
        const at::Tensor index = at::tensor(rows, at::kLong);
        global.tensor.index_copy_(0, index, global.tensor.index_select(0, index) + number);
      }
      entries_[i].local.copy_(part_of(global.name, global.tensor, global.layout, rank_).local);
    }
    const mesh::Box box = globals_[0].layout.local_box(rank_);
    for (const int64_t row : rows) {
      if (row >= box.offset[0] && row < box.offset[0] + box.size[0])
        (*last_touched_)[row - box.offset[0]] = *now_;
    }
  }
  // `count` rows, few of them often, all over the table.
  static std::vector<int64_t> some_rows(int64_t count, int64_t table_rows, uint64_t seed) {
    harness::Draw draw(seed);
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < count; ++i) {
      const double x = static_cast<double>(1 + draw.below<int64_t>(1'000'000)) / 1e6;
      rows.push_back(static_cast<int64_t>(x * x * static_cast<double>(table_rows - 1)));
    }
    std::ranges::sort(rows);
    rows.erase(std::ranges::unique(rows).begin(), rows.end());
    return rows;
  }

  // As of a process that has begun again: it knows nothing of earlier changes.
  void forget() {
    last_touched_ = std::make_shared<std::vector<int64_t>>(last_touched_->size(), 0);
  }

  std::vector<Entry> entries() const {
    std::vector<Entry> entries = entries_;
    for (Entry& entry : entries) {
      if (!entry.name.starts_with("table")) continue;
      entry.changes = {
          .source = last_touched_,
          .mark = [now = now_] { return (*now)++; },
          .since = [touched = last_touched_](int64_t mark) -> std::optional<std::vector<int64_t>> {
            std::vector<int64_t> rows;
            for (size_t row = 0; row < touched->size(); ++row) {
              if ((*touched)[row] > mark) rows.push_back(static_cast<int64_t>(row));
            }
            return rows;
          }};
    }
    return entries;
  }
  const std::vector<Global>& globals() const { return globals_; }
  // The same tensors at another layout.
  std::vector<Global> globals_at(int ranks, const mesh::Placement& placement) const {
    std::vector<Global> result = globals_;
    for (Global& global : result) {
      const bool is_vector = global.tensor.dim() == 1;
      global.layout = {global.tensor.sizes().vec(),
                       {{"data", ranks}},
                       {is_vector ? mesh::Placement::sharded(0) : placement}};
    }
    return result;
  }

 private:
  void add(const std::string& name, const at::Tensor& tensor, const mesh::Layout& layout) {
    globals_.push_back({name, tensor, layout});
    entries_.push_back(part_of(name, tensor, layout, rank_));
  }

  int rank_;
  std::vector<Global> globals_;
  std::vector<Entry> entries_;
  std::shared_ptr<std::vector<int64_t>> last_touched_;
  std::shared_ptr<int64_t> now_ = std::make_shared<int64_t>(1);
};

// Saves in the background, and waits.
inline void save_now(Saver& saver, const std::filesystem::path& root, int64_t step,
                     const TableRun& run, const SaveOptions& options = kFast) {
  saver.start(root, step, run.entries(), R"({"seed":1})", options);
  saver.finish(/*waits=*/true);
}

// By how many patches its rows of the tensor were saved.
inline int64_t num_patches(const std::filesystem::path& folder,
                           const std::string& name = "table.weight") {
  for (const TensorSummary& tensor : inspect(folder).tensors) {
    if (tensor.name == name) return tensor.num_patches;
  }
  ADD_FAILURE() << name << " is not in " << folder;
  return -1;
}

}  // namespace trireme::checkpoint
