#include "trireme/checkpoint/offline/saved_tensors.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/chunk/chunk.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/shards.h"
#include "trireme/checkpoint/tensor_boxes.h"

namespace trireme::checkpoint {
namespace {

class LazyTensor : public OffloadedTensor {
 public:
  LazyTensor(std::string name, mesh::Box box, MakePart make)
      : name_(std::move(name)), box_(std::move(box)), make_(std::move(make)) {}

  at::Tensor read() const override { return make_(box_); }
  void write(const at::Tensor& /*values*/) override {
    // A bug of ours, not the user's: the entry was made for a save.
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
  // rows_per_block: made at once at least, up to the end of a block
  LazyRows(std::string name, mesh::Box box, int64_t rows_per_block, MakePart make)
      : LazyTensor(std::move(name), std::move(box), std::move(make)),
        rows_per_block_(rows_per_block) {}

  bool goes_by_rows() const override { return true; }
  at::Tensor read_rows(int64_t begin, int64_t end) const override {
    const int64_t num_rows = block_.defined() ? block_.size(0) : 0;
    if (begin < first_ || end > first_ + num_rows) make_block(begin, end);
    at::Tensor rows = block_.narrow(0, begin - first_, end - begin);
    // Now, and not when the next box replaces it: other tensors need the memory meanwhile.
    if (end == box().size[0]) block_.reset();  // the boxes of other tensors follow
    return rows;
  }

 private:
  // Ends where a chunk does (cut_into_chunks()), so that none is read twice.
  void make_block(int64_t begin, int64_t end) const {
    mesh::Box part = box();
    part.offset[0] += begin;
    // A block ends with a chunk, so the next one does not make its rows again.
    const int64_t block_end = (part.offset[0] / rows_per_block_ + 1) * rows_per_block_;
    part.size[0] = std::min(std::max(block_end - box().offset[0], end), box().size[0]) - begin;
    // Before the new one is made, or both would be in memory.
    block_.reset();
    block_ = make(part);
    first_ = begin;
  }

  int64_t rows_per_block_;
  mutable at::Tensor block_{};
  mutable int64_t first_ = 0;  // row of the box
};

}  // namespace

SavedTensors::SavedTensors(const std::filesystem::path& folder)
    : folder_(folder),
      manifest_(std::make_unique<const Manifest>(read_manifest(folder))),
      shards_(std::make_unique<Shards>(folder, *manifest_)) {
  for (const auto& [name, record] : manifest_->tensors) {
    tensors_.emplace(name, SourceTensor{record.dtype, record.shape});
  }
}

SavedTensors::~SavedTensors() = default;

int64_t SavedTensors::step() const { return manifest_->step; }
int SavedTensors::num_ranks() const { return manifest_->world_size; }
const std::string& SavedTensors::state() const { return manifest_->state; }

at::Tensor SavedTensors::read(const std::string& name) const {
  const auto found = tensors_.find(name);
  // Unknown names fail in read_box(), with the message of both.
  const std::vector<int64_t> shape =
      found == tensors_.end() ? std::vector<int64_t>() : found->second.shape;
  return read_box(name, {std::vector<int64_t>(shape.size(), 0), shape});
}

at::Tensor SavedTensors::read_box(const std::string& name, const mesh::Box& box) const {
  const auto found = manifest_->tensors.find(name);
  if (found == manifest_->tensors.end())
    fail(folder_, "there is no tensor \"", name, "\" among its ", manifest_->tensors.size());
  const TensorRecord& record = found->second;
  at::Tensor values = at::empty(box.size, at::TensorOptions().dtype(record.dtype));
  // Shards opens files on demand and is not thread safe.
  const std::lock_guard lock(mutex_);
  shards_->read_box(name, record, box, values);
  return values;
}

int64_t num_bytes(const SourceTensor& tensor) {
  return num_bytes_of(tensor.shape, c10::elementSize(tensor.dtype)).value_or(0);
}

int64_t num_bytes(const TensorSource& source) {
  int64_t total = 0;
  for (const auto& [name, tensor] : source.tensors()) total += num_bytes(tensor);
  return total;
}

std::shared_ptr<OffloadedTensor> lazy_box(std::string name, mesh::Box box, c10::ScalarType dtype,
                                          MakePart make, LazyParts parts) {
  constexpr int64_t kChunksPerBlock = 32;  // as many as a load reads at once (read/load.cc)
  const uint64_t row_bytes = row_bytes_of(box, c10::elementSize(dtype));
  // Larger rows are cut within themselves, and parts of rows are not boxes.
  const bool is_too_long = parts == LazyParts::kBlocks && row_bytes > kChunkBytes;
  if (parts == LazyParts::kWhole || row_bytes == 0 || is_too_long)
    return std::make_shared<LazyTensor>(std::move(name), std::move(box), std::move(make));
  const int64_t rows = parts == LazyParts::kRows
                           ? 1
                           : kChunksPerBlock * static_cast<int64_t>(kChunkBytes / row_bytes);
  return std::make_shared<LazyRows>(std::move(name), std::move(box), rows, std::move(make));
}

Entry lazy_entry(const std::string& name, c10::ScalarType dtype, const mesh::Layout& layout,
                 int rank, MakePart make, LazyParts parts) {
  const mesh::Box box = layout.local_box(rank);
  return {.name = name,
          .local = at::empty(box.size, at::TensorOptions().dtype(dtype).device(at::kMeta)),
          .layout = layout,
          .rank = rank,
          .offloaded = lazy_box(name, box, dtype, std::move(make), parts)};
}

}  // namespace trireme::checkpoint
