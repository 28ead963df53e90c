// What a run keeps of the images that it was trained on, so that its model can be used without
// them: the names of the classes, and the images' shape.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/dataset/image/image_source.h"

namespace trireme::tasks {

// The file in a run's folder.
inline constexpr const char* kTrainedImagesFile = "images.json";

struct TrainedImages {
  dataset::ImageShape shape{};
  std::vector<std::string> classes{};  // by number
};

// {"channels": 3, "height": 48, "width": 48, "classes": ["cat", "dog"]}
std::string to_json(const TrainedImages& images);
// Throws: ConfigError with the path when the file is missing or is something else
TrainedImages read_trained_images(const std::filesystem::path& path);

}  // namespace trireme::tasks
