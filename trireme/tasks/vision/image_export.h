// Exports a trained image classifier: as folders that transformers and timm load, with the names
// of the classes and what is done to pixels; or only the weights.
#pragma once

#include <filesystem>

#include "trireme/tasks/export/export_options.h"

namespace trireme::tasks {

// What export_to_hugging_face() (tasks/language) is for language models. kSafetensors has our own
// config.json beside the weights, whose names are torchvision's, or transformers' of a ViT.
// Throws: as that; ConfigError for kPeft, and for a ResNet whose stem the other program lacks
ExportReport export_image_model(const std::filesystem::path& path,
                                const std::filesystem::path& output, const ExportOptions& options);

}  // namespace trireme::tasks
