// The tensors of one checkpoint, for programs that go through all of them. Opens each file once,
// and compares the digests of all bytes before it returns them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {
inline namespace internal {
struct Manifest;
class Shards;
}  // namespace internal

class SavedTensors : public TensorSource {
 public:
  // folder: a checkpoint's, saved at any layout
  // Throws: CheckpointError; Error when this process may not read it
  explicit SavedTensors(const std::filesystem::path& folder);
  ~SavedTensors() override;

  int64_t step() const;
  int num_ranks() const;             // that saved it
  const std::string& state() const;  // JSON text
  const std::map<std::string, SourceTensor>& tensors() const override { return tensors_; }
  at::Tensor read(const std::string& name) const override;
  // The part of the tensor that lies in `box`. Memory: this part only.
  // Throws: as read()
  at::Tensor read_box(const std::string& name, const mesh::Box& box) const;
  std::string kind() const override { return "a checkpoint of Trireme"; }
  const internal::Manifest& manifest() const { return *manifest_; }

 private:
  std::filesystem::path folder_;
  std::unique_ptr<const Manifest> manifest_;
  std::map<std::string, SourceTensor> tensors_;
  mutable std::mutex mutex_;
  std::unique_ptr<Shards> shards_;
};

int64_t num_bytes(const SourceTensor& tensor);
// Of all its tensors.
int64_t num_bytes(const TensorSource& source);

}  // namespace trireme::checkpoint
