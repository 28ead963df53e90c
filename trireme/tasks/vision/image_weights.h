// The weights of an image classifier that another program wrote, under our names. They are in a
// folder whose config.json says what they are (foreign_image_config.h), or are a state_dict of
// torchvision's ResNet: a file of safetensors or torch.save, or a folder with one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/ScalarType.h>

#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/tasks/vision/foreign_image_config.h"
#include "trireme/tasks/vision/image_model.h"

namespace trireme::tasks {

// What lies at a path.
struct ForeignImages {
  ForeignImageConfig config{};  // with the classes of its tensors
  std::unique_ptr<checkpoint::TensorSource> tensors{};
  std::string prefix{};  // in front of the model's names in `tensors`; others are not read
};

// Empty: nothing of another program, such as the folder of a run.
// Throws: ConfigError when the files are of no model here, or say two things of it;
//         CheckpointError when they cannot be opened
std::optional<ForeignImages> open_foreign_images(const std::filesystem::path& path);

// Throws: ConfigError with the first key of `problem` that makes another model of these weights.
//         The number of classes may be another one.
void require_same_model(const std::filesystem::path& path, const ForeignImageConfig& found,
                        const ImageProblem& problem);

// Thread safety: as TensorSource
class ImageWeights : public checkpoint::TensorSource {
 public:
  // problem: whose images the model reads. It may have other classes.
  // Throws: CheckpointError when tensors are missing, unexpected, of another shape or of no
  //         floating type; reading them also when they are damaged or not finite
  ImageWeights(const std::filesystem::path& path, ForeignImages images,
               const ImageProblem& problem);

  const std::map<std::string, checkpoint::SourceTensor>& tensors() const override {
    return tensors_;
  }
  at::Tensor read(const std::string& name) const override;
  std::string kind() const override { return "weights of an image classifier"; }

  // How many tensors have values that `dtype` rounds, and how many are not the model's.
  int64_t num_rounded(c10::ScalarType dtype) const;
  int64_t num_beside() const { return num_beside_; }
  const std::string& prefix() const { return images_.prefix; }

 private:
  std::filesystem::path path_;
  ForeignImages images_;
  std::map<std::string, std::string> stored_;  // the tensor of each parameter and buffer
  std::map<std::string, checkpoint::SourceTensor> tensors_;
  int64_t num_beside_ = 0;
};

}  // namespace trireme::tasks
