// Writes the outputs of a teacher.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/file/atomic_file.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/tasks/language/outputs/teacher_outputs.h"

namespace trireme::tasks {

// Not thread safe. The file appears under its name when it is complete.
class OutputsWriter {
 public:
  struct Shape {
    int64_t top_k = 1;
    int64_t num_training = 0;
    int64_t num_validation = 0;  // 0: none
    at::ScalarType dtype = at::ScalarType::Float;
  };
  // Throws: Error with path and reason; so do write() and finish()
  OutputsWriter(const std::filesystem::path& path, const OutputsOrigin& origin, const Shape& shape);

  // The samples from `first` on, in any order. Every sample once.
  void write(OutputsOf data, int64_t first, const SampleOutputs& outputs);
  // Returns the size of the file.
  uint64_t finish();

 private:
  void write_at(uint64_t begin, const at::Tensor& values);

  std::filesystem::path path_;
  std::vector<checkpoint::TensorInfo> tensors_;
  AtomicFile file_;
  Descriptor descriptor_;
  uint64_t data_begin_ = 0;
  at::ScalarType dtype_;
  std::map<OutputsOf, at::Tensor> checksums_;
};

}  // namespace trireme::tasks
