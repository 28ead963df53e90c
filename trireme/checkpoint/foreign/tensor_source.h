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

  // What was opened, for messages: "a Hugging Face folder".
  virtual std::string kind() const = 0;
};

// Opens what lies at `path`, by content and not by name.
// Throws: CheckpointError naming what was looked for when it is none of the forms above, or when
//         it is damaged; Error when this process may not read it
std::unique_ptr<TensorSource> open_tensors(const std::filesystem::path& path);

}  // namespace trireme::checkpoint
