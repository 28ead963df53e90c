// Named tensors in files that other programs wrote: Hugging Face folders, PyTorch's distributed
// checkpoints, state dicts. Nothing in such a file is trusted: sizes are bounded by the file's, and
// no code in it is run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

struct SourceTensor {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape{};  // of the whole tensor
};

// Thread safety: const methods may be called from any thread.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual const std::map<std::string, SourceTensor>& tensors() const = 0;

  // The whole tensor, contiguous, on the CPU. Memory: this tensor only.
  // Throws: CheckpointError with the path when there is no such tensor or its bytes are damaged
  virtual at::Tensor read(const std::string& name) const = 0;

  // The kind of source, for messages: "a Hugging Face folder".
  virtual std::string kind() const = 0;

  // The part of the tensor that lies in `box`, contiguous, on the CPU. Memory: this part, but a
  // form that does not override it reads the whole tensor.
  // Throws: as read()
  virtual at::Tensor read_box(const std::string& name, const mesh::Box& box) const;
};

// Opens what lies at `path`, by content and not by name.
// Throws: CheckpointError naming what was looked for when it is none of the forms above, or when
//         it is damaged; Error when this process may not read it
std::unique_ptr<TensorSource> open_tensors(const std::filesystem::path& path);

// A box of a tensor, in the tensor's own memory.

// Shapes: `whole` contains the box -> box.size
inline at::Tensor view_box(const at::Tensor& whole, const mesh::Box& box) {
  at::Tensor part = whole;
  for (size_t d = 0; d < box.size.size(); ++d)
    part = part.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
  return part;
}

}  // namespace trireme::checkpoint
