#include "trireme/checkpoint/offline/lazy_entry.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/chunk/chunk.h"
#include "trireme/checkpoint/chunk/patch.h"

namespace trireme::checkpoint::inline internal {
namespace {

class LazyTensor : public OffloadedTensor {
 public:
  LazyTensor(std::string name, mesh::Box box, MakePart make)
      : name_(std::move(name)), box_(std::move(box)), make_(std::move(make)) {}

  at::Tensor read() const override { return make_(box_); }
  void write(const at::Tensor& /*values*/) override {
    throw InternalError(concat("\"", name_, "\" can only be saved"));
  }

 protected:
  const mesh::Box& box() const { return box_; }
  at::Tensor make(const mesh::Box& part) const { return make_(part); }

 private:
  std::string name_;
  mesh::Box box_;
  MakePart make_;
};

// Keeps the rows that were made last.
class LazyRows : public LazyTensor {
 public:
  LazyRows(std::string name, mesh::Box box, uint64_t row_bytes, MakePart make)
      : LazyTensor(std::move(name), std::move(box), std::move(make)),
        rows_per_block_(kChunksPerBlock * static_cast<int64_t>(kChunkBytes / row_bytes)) {}

  bool goes_by_rows() const override { return true; }
  at::Tensor read_rows(int64_t begin, int64_t end) const override {
    const int64_t num_rows = block_.defined() ? block_.size(0) : 0;
    if (begin < first_ || end > first_ + num_rows) make_block(begin, end);
    at::Tensor rows = block_.narrow(0, begin - first_, end - begin);
    if (end == box().size[0]) block_.reset();  // the boxes of other tensors follow
    return rows;
  }

 private:
  static constexpr int64_t kChunksPerBlock = 32;

  // Ends where a chunk does (cut_into_chunks()), so that none is read twice.
  void make_block(int64_t begin, int64_t end) const {
    mesh::Box part = box();
    part.offset[0] += begin;
    const int64_t block_end = (part.offset[0] / rows_per_block_ + 1) * rows_per_block_;
    part.size[0] = std::min(std::max(block_end - box().offset[0], end), box().size[0]) - begin;
    block_.reset();
    block_ = make(part);
    first_ = begin;
  }

  int64_t rows_per_block_;
  mutable at::Tensor block_{};
  mutable int64_t first_ = 0;  // row of the box
};

}  // namespace

std::shared_ptr<OffloadedTensor> lazy_box(std::string name, mesh::Box box, c10::ScalarType dtype,
                                          MakePart make) {
  const uint64_t row_bytes = row_bytes_of(box, c10::elementSize(dtype));
  if (row_bytes == 0 || row_bytes > kChunkBytes)
    return std::make_shared<LazyTensor>(std::move(name), std::move(box), std::move(make));
  return std::make_shared<LazyRows>(std::move(name), std::move(box), row_bytes, std::move(make));
}

Entry lazy_entry(const std::string& name, c10::ScalarType dtype, const mesh::Layout& layout,
                 int rank, MakePart make) {
  const mesh::Box box = layout.local_box(rank);
  return {.name = name,
          .local = at::empty(box.size, at::TensorOptions().dtype(dtype).device(at::kMeta)),
          .layout = layout,
          .rank = rank,
          .offloaded = lazy_box(name, box, dtype, std::move(make))};
}

}  // namespace trireme::checkpoint::inline internal
