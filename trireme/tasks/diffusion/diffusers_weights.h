// The weights of a diffusion transformer in a folder of diffusers, under our names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/model/family/hugging_face_form.h"
#include "trireme/tasks/diffusion/diffusers_config.h"

namespace trireme::tasks {

// Where the files are: in the folder of a model, or in the folders `transformer` and `scheduler` of
// a pipeline.
struct DiffusersFolder {
  std::filesystem::path model{};      // has config.json
  std::filesystem::path scheduler{};  // a scheduler_config.json; "": there is none
};

// Empty: `folder` is none of diffusers.
std::optional<DiffusersFolder> find_diffusers_folder(const std::filesystem::path& folder);

// Throws: ConfigError when the files say something that no model here is
DiffusersModel read_diffusers_model(const DiffusersFolder& folder);
void read_diffusers_noise(const DiffusersFolder& folder, NoiseConfig& noise);

// The tensors of DiTTransformer2DModel, of our parameters. It has a copy of the embeddings of
// timesteps and classes in each block.
std::vector<model::HuggingFaceTensor> diffusers_tensors(const model::DitConfig& dit);

// Thread safety: as TensorSource
class DiffusersWeights : public checkpoint::TensorSource {
 public:
  // Throws: CheckpointError when the tensors cannot be opened, or are missing, unexpected, of
  //         another shape or of no floating type; reading them also when they are damaged or not
  //         finite, or blocks have learnt different embeddings
  DiffusersWeights(const DiffusersFolder& folder, const DiffusersModel& model);

  const std::map<std::string, checkpoint::SourceTensor>& tensors() const override {
    return tensors_;
  }
  at::Tensor read(const std::string& name) const override;
  std::string kind() const override { return "a folder of diffusers"; }

  // How many tensors have values that `dtype` rounds.
  int64_t num_rounded(c10::ScalarType dtype) const;

 private:
  at::Tensor read_finite(const std::string& stored) const;

  std::filesystem::path path_;
  DiffusersModel model_;
  std::unique_ptr<checkpoint::TensorSource> source_;
  std::map<std::string, std::vector<std::string>> stored_;  // the tensors of each parameter
  std::map<std::string, checkpoint::SourceTensor> tensors_;
};

}  // namespace trireme::tasks
