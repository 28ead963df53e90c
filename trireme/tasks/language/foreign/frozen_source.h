// A model whose frozen weights are read as codes with scales (lora.base).
#pragma once

#include <filesystem>
#include <memory>

#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/model/family/model_config.h"

namespace trireme::tasks {

// The tensors of `weights`, but for those weights that the model keeps as codes: these are made
// from them, one weight at a time. `weights` itself if there are none.
// Memory: as TensorSource, and the codes of the last weight
// Throws: read(): CheckpointError when a weight is not finite
std::unique_ptr<checkpoint::TensorSource> frozen(std::unique_ptr<checkpoint::TensorSource> weights,
                                                 const model::ModelConfig& config);

// The same of the checkpoint `folder`. Null: it is none, or has what the model keeps.
std::unique_ptr<checkpoint::TensorSource> open_to_freeze(const std::filesystem::path& folder,
                                                         const model::ModelConfig& config);

}  // namespace trireme::tasks
