// Exports a checkpoint as a folder that Hugging Face's transformers loads: weights, config.json and
// the tokenizer; or only the same weights, as safetensors or as a checkpoint of
// torch.distributed.checkpoint. The same code serves every layout, because it reads global tensors,
// wherever their pieces are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/base/choice.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {

enum class ExportForm {
  kHuggingFace,  // what transformers loads
  kSafetensors,  // the same files of weights, and nothing else
  kDcp,          // what torch.distributed.checkpoint loads: the weights only
  kPeft,         // the adapters, for the package peft; in the others they are merged
};

inline constexpr Choice<ExportForm> kExportForms[] = {{"hf", ExportForm::kHuggingFace},
                                                      {"safetensors", ExportForm::kSafetensors},
                                                      {"dcp", ExportForm::kDcp},
                                                      {"peft", ExportForm::kPeft}};

struct HuggingFaceExportOptions {
  ExportForm form = ExportForm::kHuggingFace;
  // The dtype of all weights; empty: the one that the run computes in.
  std::optional<c10::ScalarType> dtype{};
  train::Weights weights = train::Weights::kLast;
  // Limit on the tensors in one safetensors file. A larger model becomes several files and an
  // index; a larger tensor gets its own file.
  int64_t max_shard_bytes = 5'000'000'000;
};

struct HuggingFaceExport {
  std::filesystem::path checkpoint;
  int64_t step = 0;
  std::string architecture;  // the class in transformers that loads it
  c10::ScalarType dtype = c10::ScalarType::Float;
  bool from_masters = false;  // the values come from the optimizer's fp32 weights
  int64_t num_tensors = 0;
  int64_t num_parameters = 0;
  int64_t num_bytes = 0;                              // of tensors
  std::vector<std::string> files{};                   // the files with weights
  std::optional<dataset::TokenizerKind> tokenizer{};  // none: the run's was not found
  // Files copied unchanged from the imported model, such as a chat template.
  std::vector<std::string> imported_files{};
  std::string note{};  // why what came with it is left out; "": it is not
};

// Exports the newest checkpoint that find_checkpoint() finds at `path` to the folder `output`. What
// came with an imported model goes out with it, unless the run has another tokenizer. The
// folder appears at once and complete. A kill leaves ".<name>.tmp" beside it, which the next export
// to it removes. Omits the optimizer's states, but uses its fp32 weights if `dtype` differs from
// the run's.
// Memory: 16 MiB of a tensor, 256 MiB of one that is transposed or of any for kDcp; up to three
//         times that where it is converted and transposed
// Throws: CheckpointError when the checkpoint lacks a tensor, has one of another shape, or a
//         checksum is wrong; ConfigError when `output` is neither new nor empty, or a value is too
//         large for the dtype; Error when it cannot be written
HuggingFaceExport export_to_hugging_face(const std::filesystem::path& path,
                                         const std::filesystem::path& output,
                                         const HuggingFaceExportOptions& options = {});

}  // namespace trireme::tasks
