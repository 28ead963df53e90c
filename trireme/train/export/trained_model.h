// Reads a model and its tokenizer from a checkpoint on one rank, for generation and evaluation.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/dataset/tokenizer.h"
#include "trireme/model/model.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

struct TrainedModel {
  RunConfig config;
  std::unique_ptr<model::LanguageModel> model;
  std::unique_ptr<dataset::Tokenizer> tokenizer;
};

// The newest checkpoint in a run's folder or in its checkpoints/, or `path` itself if it is one.
// Throws: CheckpointError when there is none
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

// The tokenizer of the run that saved the checkpoint `folder`: the copy in the run's folder, or the
// one beside its data (which may have moved). Null when neither exists.
// Throws: ConfigError when it is damaged
std::unique_ptr<dataset::Tokenizer> find_tokenizer(const std::filesystem::path& folder,
                                                   const RunConfig& config);

// Throws: CheckpointError naming the tensor `name` of the checkpoint `folder` when one of its
//         values is NaN or infinite; a model with such weights would produce noise
void require_finite(const at::Tensor& values, const std::string& name,
                    const std::filesystem::path& folder);

// Throws: CheckpointError, also for weights that are not finite; ConfigError when there is no
//         tokenizer at data.path
TrainedModel load_trained_model(const std::filesystem::path& path);

}  // namespace trireme::train
