// The checkpoints of a run, for commands that read one.
#pragma once

#include <filesystem>
#include <string>

#include <ATen/core/Tensor.h>

namespace trireme::train {

// The newest checkpoint in a run's folder or in its checkpoints/, or `path` itself if it is one.
// Throws: CheckpointError when there is none
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

// Which weights of a run to use: those of its last step, or their moving average (average.decay).
enum class Weights { kLast, kAverage };

// The name of a parameter's tensor in a checkpoint.
std::string tensor_of(const std::string& parameter, Weights weights);

// state: the checkpoint's, as inspect() returns it.
// Throws: CheckpointError when the checkpoint `folder` has no such weights
void require_weights(Weights weights, const std::string& state,
                     const std::filesystem::path& folder);

// Throws: CheckpointError naming the tensor `name` of the checkpoint `folder` when one of its
//         values is NaN or infinite; a model with such weights would produce noise
void require_finite(const at::Tensor& values, const std::string& name,
                    const std::filesystem::path& folder);

}  // namespace trireme::train
