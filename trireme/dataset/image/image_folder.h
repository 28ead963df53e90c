// PNG and JPEG files in folders that are named after their classes.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "trireme/dataset/image/image_source.h"
#include "trireme/dataset/image/image_tree.h"

namespace trireme::dataset {

// Which files of a class are read. Those that are held out are drawn by a hash of their names, so
// that they stay the same when the files are copied, and no image more is held out than `share` of
// the class. A class of one image holds none out.
struct HeldOut {
  double share = 0;
  bool is_wanted = false;  // they, or all others
  std::string no_class{};  // a folder beside those of the classes, such as val; "": there is none
};

// The files `path`/<class>/*.png, .jpg and .jpeg, in any case of letters. Classes are numbered, and
// files ordered, by the bytes of their names. Hidden files and folders are left out and counted; so
// are files whose names are not those of images. An image becomes [3, H, W], red, green and blue.
// Only the names of files are kept in memory.
// like: takes the classes of another source, such as the training data's, and refuses other ones.
// Throws: ConfigError with the path: a folder that cannot be read, without classes, a class without
//         images, an image in no class or in another format; get() when a file cannot be read or
//         decoded, or, without a size, has another one than the first
std::unique_ptr<ImageSource> open_image_folder(const std::filesystem::path& path,
                                               const ImageOptions& options = {},
                                               const ImageSource* like = nullptr,
                                               const HeldOut& held_out = {});
// The same of a folder of a tree, such as one in a bucket. An image in a store is a request.
std::unique_ptr<ImageSource> open_image_folder(const ImageTree& tree, const std::string& folder,
                                               const ImageOptions& options = {},
                                               const ImageSource* like = nullptr,
                                               const HeldOut& held_out = {});

}  // namespace trireme::dataset
