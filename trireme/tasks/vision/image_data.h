// The images of a run: finds and opens them as the keys say.
#pragma once

#include <memory>

#include "trireme/dataset/image/image_source.h"
#include "trireme/tasks/vision/vision_config.h"

namespace trireme::tasks::inline internal {

// Throws: ConfigError with the path, when there are no images of the format, or one is wrong
std::shared_ptr<const dataset::ImageSource> open_training_images(const VisionConfig& config);
// training: the source whose classes and shape these have
std::shared_ptr<const dataset::ImageSource> open_validation_images(
    const VisionConfig& config, const dataset::ImageSource& training);

}  // namespace trireme::tasks::inline internal
