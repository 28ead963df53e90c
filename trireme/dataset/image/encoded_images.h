// The part that sources of PNG and JPEG files share: from a file's bytes to a sample.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/dataset/image/image_source.h"
#include "trireme/dataset/image/pixels.h"

namespace trireme::dataset {

// An encoded file is refused above this many bytes.
inline constexpr uint64_t kMostEncodedBytes = uint64_t{1} << 28;

// Thread safe. With options.size it cuts and resizes; with augmentation it draws the cut. Decodes
// only what is left.
class ImageMaker {
 public:
  // first: an image of the source, whose size is that of all when options.size is 0
  // Throws: ConfigError for options out of range, for a build without the libraries, and as
  //         image_size()
  ImageMaker(const ImageOptions& options, std::span<const std::byte> first,
             const std::string& name);

  ImageShape shape() const { return shape_; }

  // Throws: ConfigError with the name when the image cannot be read or has another size
  at::Tensor make(std::span<const std::byte> bytes, const std::string& name,
                  std::optional<RandomKey> augmentation) const;

 private:
  Box centre_of(const ImageSize& size) const;

  ImageOptions options_;
  std::string first_name_;
  ImageShape shape_;
};

// The sample of an image and its class.
NamedTensors image_sample(at::Tensor image, int64_t label);

// Classes by name.
using ClassNumbers = std::unordered_map<std::string, int64_t>;
ClassNumbers numbers_of(const std::vector<std::string>& classes);
// The classes of a source whose own are `found`: those of `like` when there is one.
// Throws: ConfigError, when `found` has one that `like` does not have, or the shapes differ
std::vector<std::string> agreed_classes(const std::vector<std::string>& found,
                                        const std::string& where, const ImageSource* like);
void check_shape_like(const ImageShape& shape, const std::string& where, const ImageSource* like);

// The items of a folder, sorted by the bytes of their names.
// Throws: ConfigError when it cannot be read
std::vector<std::filesystem::directory_entry> items_of(const std::filesystem::path& folder);
// Throws: ConfigError when `name`, which is in the folder, would command a terminal
void require_printable(const std::filesystem::path& folder, const std::string& name);

// Whether a file name ends in .png, .jpg or .jpeg, in any case of letters.
bool is_image_name(std::string_view name);

}  // namespace trireme::dataset
