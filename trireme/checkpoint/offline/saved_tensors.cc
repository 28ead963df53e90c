#include "trireme/checkpoint/offline/saved_tensors.h"

#include <ATen/ops/empty.h>

#include "trireme/checkpoint/exact_cover.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/shards.h"

namespace trireme::checkpoint {

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

}  // namespace trireme::checkpoint
