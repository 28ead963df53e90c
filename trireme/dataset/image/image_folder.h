// PNG and JPEG files in folders that are named after their classes.
#pragma once

#include <filesystem>
#include <memory>

#include "trireme/dataset/image/image_options.h"
#include "trireme/dataset/image/image_source.h"

namespace trireme::dataset {

// The files `path`/<class>/*.png, .jpg and .jpeg, in any case of letters. Classes are numbered, and
// files ordered, by the bytes of their names. Hidden files and folders are ignored. An image
// becomes [3, H, W], red, green and blue. Only the names of files are kept in memory.
// like: takes the classes of another source, such as the training data's, and refuses other ones.
// Throws: ConfigError with the path: a folder that cannot be read, without classes, a class without
//         images, any other file; get() when a file cannot be read or decoded, or, without a size,
//         has another one than the first
std::unique_ptr<ImageSource> open_image_folder(const std::filesystem::path& path,
                                               const ImageOptions& options = {},
                                               const ImageSource* like = nullptr);

}  // namespace trireme::dataset
