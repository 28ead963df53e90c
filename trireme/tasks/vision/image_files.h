// Finds and opens images by class as the keys say.
#pragma once

#include <memory>
#include <string>

#include "trireme/dataset/image/image_source.h"
#include "trireme/dataset/image/image_tree.h"
#include "trireme/tasks/vision/image_config.h"

namespace trireme::tasks {

// Checks the keys against each other, without data.
// Throws: ConfigError
void check_augmentation(const ImageFiles& config);

// data.path, on this machine or in a store, with the keys of this process's environment.
// Throws: ConfigError when it cannot be a folder
std::shared_ptr<const dataset::ImageTree> open_image_tree(const ImageDataConfig& data);

// tree: of data.path; without it, it is opened
// Throws: ConfigError with the path, when there are no images of the format, or one is wrong
std::shared_ptr<const dataset::ImageSource> open_training_images(const ImageFiles& config,
                                                                 const dataset::ImageTree& tree);
std::shared_ptr<const dataset::ImageSource> open_training_images(const ImageFiles& config);
// training: the source whose classes and shape these have
std::shared_ptr<const dataset::ImageSource> open_validation_images(
    const ImageFiles& config, const dataset::ImageSource& training, const dataset::ImageTree& tree);
std::shared_ptr<const dataset::ImageSource> open_validation_images(
    const ImageFiles& config, const dataset::ImageSource& training);

// What a start says of files that lie among them: ", without 2 files that are not images"; "".
std::string without(const dataset::ImageSource& images);

}  // namespace trireme::tasks
