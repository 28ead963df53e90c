// A checkpoint as a folder that Hugging Face's transformers loads: weights, config.json and the
// tokenizer. One path for every layout: it reads whole tensors, wherever their pieces are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

namespace trireme::train {

struct HuggingFaceExportOptions {
  // Of all weights; none: the one that the run computes in.
  std::optional<c10::ScalarType> dtype{};
  // Of tensors in one file; a larger model becomes several files and an index, and a larger tensor
  // has a file of its own.
  int64_t max_shard_bytes = 5'000'000'000;
};

struct HuggingFaceExport {
  std::filesystem::path checkpoint;
  int64_t step = 0;
  std::string architecture;  // the class of transformers that loads it
  c10::ScalarType dtype = c10::ScalarType::Float;
  bool from_masters = false;  // the values are those of the optimizer's fp32 weights
  int64_t num_tensors = 0;
  int64_t num_parameters = 0;
  int64_t num_bytes = 0;             // of tensors
  std::vector<std::string> files{};  // with weights
  std::string tokenizer;             // its kind; "": the run's was not found
};

// Writes the folder `output` from the newest checkpoint that find_checkpoint() finds at `path`. It
// appears at once and complete; a kill leaves ".<name>.tmp" beside it, which the next export to it
// removes. Takes memory for one tensor, not for a file or the model. The optimizer's states stay
// behind, but for the fp32 weights, which are taken when `dtype` is another than the run's.
// Throws: CheckpointError when the checkpoint lacks a tensor or a checksum is wrong; ConfigError
//         when `output` is neither new nor empty, or a value is too large for the dtype; Error when
//         it cannot be written
HuggingFaceExport export_to_hugging_face(const std::filesystem::path& path,
                                         const std::filesystem::path& output,
                                         const HuggingFaceExportOptions& options = {});

}  // namespace trireme::train
