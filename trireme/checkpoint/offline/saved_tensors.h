// The tensors of one checkpoint, for programs that go through all of them: opens each file once,
// and compares the digests of all bytes before it returns them. And tensors for saves whose values
// are made when they are written, so that one at a time, or a part of a large one, is in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

struct Manifest;
class Shards;
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
  at::Tensor read_box(const std::string& name, const mesh::Box& box) const override;
  std::string kind() const override { return "a checkpoint of Trireme"; }
  const Manifest& manifest() const { return *manifest_; }

 private:
  std::filesystem::path folder_;
  std::unique_ptr<const Manifest> manifest_;
  std::map<std::string, SourceTensor> tensors_;
  mutable std::mutex mutex_;
  std::unique_ptr<Shards> shards_;
};

int64_t num_bytes(const SourceTensor& tensor);
// Bytes of all tensors of the source.
int64_t num_bytes(const TensorSource& source);

// Progress of long work on a checkpoint.

// Called with the bytes done and the bytes in total, never by two threads at once.
using OnProgress = std::function<void(int64_t done, int64_t total)>;

// What of a box is made, and in memory, at one time.
enum class LazyParts {
  kBlocks,  // at most 32 MiB, some rows; the whole box if a row has more than kChunkBytes
  kRows,    // the rows that a save asks for: those of a chunk, or two that are longer
  kWhole,
};

// A box that is made in parts when it is saved. Writing to it fails with an InternalError.
// make: returns the values of that part of the box
using MakePart = std::function<at::Tensor(const mesh::Box& part)>;
std::shared_ptr<OffloadedTensor> lazy_box(std::string name, mesh::Box box, c10::ScalarType dtype,
                                          MakePart make, LazyParts parts = LazyParts::kBlocks);

// An entry for rank `rank`'s box in `layout`, as lazy_box(). Only for save(); load() fails with an
// InternalError.
Entry lazy_entry(const std::string& name, c10::ScalarType dtype, const mesh::Layout& layout,
                 int rank, MakePart make, LazyParts parts = LazyParts::kBlocks);

}  // namespace trireme::checkpoint
