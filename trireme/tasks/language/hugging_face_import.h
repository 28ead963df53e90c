// Imports weights that another program wrote as the folder of a run: from a folder of Hugging
// Face's transformers, or from any tensors with its names or ours.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/dataset/tokenizer.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {

struct HuggingFaceImportOptions {
  // The dtype of all weights, and what the run computes in; empty: that of config.json, or of the
  // tensors.
  std::optional<c10::ScalarType> dtype{};
  // config.json; empty: the one in the source, if there is one. Without any, the overrides say what
  // the model is.
  std::filesystem::path config{};
  // Keys of the run.
  std::span<const train::Override> overrides{};
};

struct HuggingFaceImport {
  std::string source;        // "a Hugging Face folder"
  std::string architecture;  // the class in transformers; "": the names are ours
  c10::ScalarType dtype = c10::ScalarType::Float;
  int64_t num_tensors = 0;  // that were read
  int64_t num_parameters = 0;
  int64_t num_bytes = 0;                              // of the weights that were written
  std::optional<dataset::TokenizerKind> tokenizer{};  // none: the run has none
  std::string tokenizer_problem{};                    // why not, if the source has one
  // A line for each fact that the source says twice, and for each value that is not taken as it is.
  std::vector<std::string> notes{};
};

// Writes the folder `output` of a run that has not trained: config.toml, a checkpoint of step 0
// with weights only, the tokenizer, and what an export repeats (foreign/imported_files.h). It
// appears at once and complete. Needs memory for one parameter, which may be that of all experts
// of a block.
// Throws: ConfigError when config.json or an override says something that no model here is, when
//         `output` is neither new nor empty, or a value is too large for the dtype; CheckpointError
//         when tensors are missing, unexpected, of another shape or dtype, damaged or not finite;
//         Error when the output cannot be written
HuggingFaceImport import_from_hugging_face(const std::filesystem::path& source,
                                           const std::filesystem::path& output,
                                           const HuggingFaceImportOptions& options = {});

}  // namespace trireme::tasks
