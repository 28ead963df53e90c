// The config files of exported image models: the model's shape, the names of the classes, and what
// is done to pixels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/tasks/vision/image_model.h"
#include "trireme/tasks/vision/trained_images.h"

namespace trireme::tasks {

// The blocks of a ResNet's four groups.
struct ResNetShape {
  std::vector<int64_t> depths{};
  bool is_bottleneck = false;

  // Channels of each group's output.
  std::vector<int64_t> widths() const;
  bool operator==(const ResNetShape&) const = default;
};
ResNetShape resnet_shape(ImageFamily family);
// Empty: none of ours has it.
std::optional<ImageFamily> find_resnet(const ResNetShape& shape);

// A model and the names of all its classes.
struct ExportedImageModel {
  ImageProblem problem;
  std::vector<std::string> classes{};  // of each output

  bool is_vit() const { return problem.config.model.family == ImageFamily::kVit; }
};
// images: of the run. Outputs without a class are named by their numbers.
ExportedImageModel exported_model(const ImageProblem& problem, const TrainedImages& images);

// transformers' config.json and preprocessor_config.json.
std::string transformers_config(const ExportedImageModel& model, c10::ScalarType dtype);
std::string transformers_preprocessor(const ExportedImageModel& model);
// timm's config.json.
std::string timm_config(const ExportedImageModel& model);
// timm's name of the architecture: "resnet18".
std::string timm_architecture(const ExportedImageModel& model);
// Our own, beside weights only: {"family", "image": {...}, "classes": [...], "model": {...}}.
std::string own_config(const ExportedImageModel& model);

}  // namespace trireme::tasks
