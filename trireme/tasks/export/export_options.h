// What an export of a checkpoint is asked for, and what it says of itself.
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
  kTimm,         // what timm loads
  kDiffusers,    // what diffusers loads
  kSafetensors,  // files of weights; of a model that is not a language model with its config
  kDcp,          // what torch.distributed.checkpoint loads: the weights only
  kPeft,         // the adapters, for the package peft; in the others they are merged
};

inline constexpr Choice<ExportForm> kExportForms[] = {{"hf", ExportForm::kHuggingFace},
                                                      {"timm", ExportForm::kTimm},
                                                      {"diffusers", ExportForm::kDiffusers},
                                                      {"safetensors", ExportForm::kSafetensors},
                                                      {"dcp", ExportForm::kDcp},
                                                      {"peft", ExportForm::kPeft}};

struct ExportOptions {
  ExportForm form = ExportForm::kHuggingFace;
  // The dtype of all weights; empty: the one that the run computes in.
  std::optional<c10::ScalarType> dtype{};
  train::Weights weights = train::Weights::kLast;
  // Limit on the tensors in one safetensors file. A larger model becomes several files and an
  // index; a larger tensor gets its own file.
  int64_t max_shard_bytes = 5'000'000'000;
  std::string license{};  // of the weights, for the card, such as "apache-2.0"; "": none is stated
};

struct ExportReport {
  std::filesystem::path checkpoint;
  int64_t step = 0;
  std::string architecture;  // the class that loads it
  c10::ScalarType dtype = c10::ScalarType::Float;
  bool from_masters = false;  // the values come from the optimizer's fp32 weights
  int64_t num_tensors = 0;
  int64_t num_parameters = 0;
  int64_t num_bytes = 0;             // of tensors
  std::vector<std::string> files{};  // the files with weights
  bool is_image_model = false;
  std::optional<dataset::TokenizerKind> tokenizer{};  // none: the run's was not found
  // Files copied unchanged from the imported model, such as a chat template.
  std::vector<std::string> imported_files{};
  std::string note{};  // why what came with it is left out; "": it is not
};

// Throws: ConfigError when the limit on a file or the license is out of range
void check_export(const ExportOptions& options);

}  // namespace trireme::tasks
