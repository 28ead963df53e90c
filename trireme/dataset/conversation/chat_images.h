// The images of conversations: which ones a line names, their pixels, and the tokens that they
// take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trireme/dataset/conversation/chat_encoder.h"

namespace trireme::dataset {

// Stands for an image in a text.
inline constexpr std::string_view kImagePlace = "<image>";

struct ChatImageOptions {
  int64_t image_size = 0;  // S: images become S x S; 0: conversations have none
  int64_t patch_size = 14;
  std::string folder{};  // of paths that are not absolute; empty: that of the file that names them
  bool is_on() const { return image_size > 0; }
  int64_t tokens_per_image() const { return (image_size / patch_size) * (image_size / patch_size); }
};

// The paths of a line's images, in the order of their places: a part {"type": "image"} of a content
// that is a list, with the path as its "path", "url" or "image"; or <image> in a text. Places
// without a path take those of the line's "image", a text, or "images", a list of them.
// where: "chat.jsonl:7", begins every message
// Throws: ConfigError for a line that is no object, for an address that is no file, and when places
//         and paths are not as many
std::vector<std::string> images_of_line(std::string_view line, const std::string& where);

// Puts `tokens_per_image` image tokens in the place of each, which nobody learns.
// Throws: ConfigError when the template wrote more or fewer places than num_images
ChatTokens with_image_tokens(const ChatTokens& text, int32_t image_token, int64_t tokens_per_image,
                             size_t num_images, const std::string& where);

// A PNG or JPEG file as CLIP's processor in transformers brings it to S x S: the shorter side
// becomes S pixels, with a bicubic filter, and the square in the middle stays. [3, S, S], red,
// green, blue, each within two levels of that.
// Throws: ConfigError with `where` and the path when it cannot be read
std::vector<int32_t> read_chat_image(const std::filesystem::path& path, int64_t image_size,
                                     const std::string& where);

}  // namespace trireme::dataset
