// Writes the outputs of a teacher.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/file/atomic_file.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/dataset/file/journal.h"
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
  // Where the samples of a writer that was interrupted stay (dataset/file/journal.h).
  struct Kept {
    std::filesystem::path work;
    std::string computed;  // what decides the numbers beside origin and shape
  };
  // Throws: Error with path and reason; so do the functions below
  OutputsWriter(const std::filesystem::path& path, const OutputsOrigin& origin, const Shape& shape);
  // Goes on behind the samples that the work folder keeps of the same origin, shape and `computed`.
  OutputsWriter(const std::filesystem::path& path, const OutputsOrigin& origin, const Shape& shape,
                const Kept& kept);

  // The samples from `first` on, in any order. Every sample once.
  void write(OutputsOf data, int64_t first, const SampleOutputs& outputs);
  // Samples from 0 on that are written without a gap, if they come in order.
  int64_t num_written(OutputsOf data) const { return num_written_.at(data); }
  // Brings those to the disk with a journal. Only with Kept.
  void keep();
  // Returns the size of the file.
  uint64_t finish();

 private:
  void plan(const OutputsOrigin& origin, const Shape& shape);
  void open(uint64_t num_bytes);
  const checkpoint::TensorInfo& find(OutputsOf data, const std::string& part) const;
  void write_rows(OutputsOf data, const std::string& part, int64_t first, const at::Tensor& rows);

  std::filesystem::path path_;
  std::vector<checkpoint::TensorInfo> tensors_{};
  std::string header_{};
  at::ScalarType dtype_;
  std::optional<dataset::PreparationPlace> place_{};
  std::optional<AtomicFile> file_{};
  Descriptor descriptor_{};
  uint64_t file_bytes_ = 0;  // as far as it is written
  std::map<OutputsOf, int64_t> num_written_ = {{OutputsOf::kTraining, 0},
                                               {OutputsOf::kValidation, 0}};
};

}  // namespace trireme::tasks
