// The config.json of image classifiers that other programs wrote: transformers (ResNet and ViT),
// timm (ResNet), and our own exports of weights only. Reads no file. The text is not trusted: a
// key that changes what is computed and has no counterpart here is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/tasks/vision/vision_config.h"

namespace trireme::tasks {

// How the tensors of a ResNet are named. Those of a ViT have transformers' names.
enum class ResNetNames { kTorchvision, kTransformers };

struct ForeignImageConfig {
  ImageModelConfig model{};
  model::VitConfig vit{};  // of a ViT; the classes of any model, 0: the file does not say
  ResNetNames names = ResNetNames::kTorchvision;
  // What the file says of pixels; empty: nothing, or what is none of ours.
  std::optional<Normalisation> normalise{};
  std::vector<std::string> notes{};  // for people
};

// source: begins every message
// Throws: ConfigError with the key, the value found and the value expected
ForeignImageConfig parse_foreign_image_config(std::string_view text, const std::string& source);

}  // namespace trireme::tasks
