// The checkpoints of a run, for commands that read one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace torch::nn {
class Module;
}
namespace trireme::checkpoint {
struct Manifest;
}
namespace trireme::comm {
class Communicator;
}
namespace trireme::parallel {
class EmbeddingTables;
}

namespace trireme::train {

// The newest checkpoint in a run's folder or in its checkpoints/, or `path` itself if it is one.
// Throws: CheckpointError when there is none
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

// The folder of the run that saved a checkpoint, in which the task has written its files.
// checkpoint: may be relative or end in a slash
std::filesystem::path run_folder_of(const std::filesystem::path& checkpoint);

// The weights of a run to use: those of its last step, or their moving average (average.decay).
enum class Weights { kLast, kAverage };

// The name of a parameter's tensor in a checkpoint.
std::string tensor_of(const std::string& parameter, Weights weights);

// state: the checkpoint's, as inspect() returns it.
// Throws: CheckpointError when the checkpoint `folder` has no such weights
void require_weights(Weights weights, const std::string& state,
                     const std::filesystem::path& folder);

bool is_finite(const at::Tensor& values);

// Throws: CheckpointError naming the tensor `name` of the checkpoint `folder` when one of its
//         values is NaN or infinite; a model with such weights would produce noise
void require_finite(const at::Tensor& values, const std::string& name,
                    const std::filesystem::path& folder);
// The same for a tensor that is read in parts, given its numbers of values and of non-finite ones.
void require_finite(int64_t num_not_finite, int64_t num_values, const std::string& name,
                    const std::filesystem::path& folder);

// The values in another dtype. `name` is theirs, for messages.
// Throws: ConfigError when the dtype cannot hold one of them, which would become infinite
at::Tensor in_dtype(const at::Tensor& values, c10::ScalarType dtype, const std::string& name);

// A checkpoint whose weights go into a whole model on one rank.
class SavedModel {
 public:
  // path: as for find_checkpoint()
  // Throws: CheckpointError, also when there are no such weights
  SavedModel(const std::filesystem::path& path, Weights weights);

  const std::filesystem::path& folder() const { return folder_; }
  const std::string& config() const { return config_; }  // TOML
  int64_t step() const;
  std::filesystem::path run_folder() const { return run_folder_of(folder_); }
  // Checks that weights of that size fit into this machine's memory, before they are allocated,
  // because the numbers come from a file.
  // Throws: ConfigError
  void require_room(int64_t num_parameters, c10::ScalarType dtype) const;
  // Fills in the parameters and the buffers. Buffers are those of the last step, also with averaged
  // weights.
  // Throws: CheckpointError, also when values are not finite
  void load(torch::nn::Module& module) const;
  // Fills in the tables of one rank, whose rows are in memory, also those with open vocabularies.
  // They are those of the last step, also with averaged weights.
  // Throws: as above
  void load(parallel::EmbeddingTables& tables) const;
  // The same for tables that the ranks of `world` share.
  // Collective: every rank of `world`
  // Throws:     as above; for values that are not finite on the rank that has them
  void load(parallel::EmbeddingTables& tables, comm::Communicator& world) const;

 private:
  std::filesystem::path folder_;
  Weights weights_;
  std::shared_ptr<const checkpoint::Manifest> manifest_;
  std::string config_;
};

}  // namespace trireme::train
