#include "trireme/dataset/conversation/chat_images.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/conversation/conversation.h"
#include "trireme/dataset/image/decode.h"
#include "trireme/dataset/image/encoded_images.h"
#include "trireme/dataset/image/pixels.h"

namespace trireme::dataset {
namespace {

using nlohmann::json;

std::string path_of(const JsonView& value) {
  constexpr std::string_view kFile = "file://";
  std::string path = value.text();
  if (path.starts_with(kFile)) path.erase(0, kFile.size());
  if (path.empty() || path.find("://") != path.npos || path.starts_with("data:"))
    value.fail("the path of a PNG or JPEG file: download it first");
  return path;
}

constexpr int64_t kColours = 3;

// Of an image whose shorter side becomes `side` pixels: the square in the middle of that, in pixels
// of the image.
Region middle_of(const ImageSize& size, int64_t side) {
  const int64_t shorter = std::min(size.height, size.width);
  const auto along = [&](int64_t length) {
    const int64_t resized = length == shorter ? side : side * length / shorter;
    const double scale = static_cast<double>(length) / static_cast<double>(resized);
    const auto before = static_cast<double>((resized - side) / 2);
    return std::pair(before * scale, static_cast<double>(side) * scale);
  };
  const auto [top, height] = along(size.height);
  const auto [left, width] = along(size.width);
  return {top, left, height, width};
}

// "": a place whose path is beside the messages.
using Places = std::vector<std::string>;

void add_part(const JsonView& part, Places& places) {
  const auto type = part.find("type");
  if (!type || !type->value().is_string()) return;
  if (type->text() != "image" && type->text() != "image_url") return;
  for (const char* const name : {"path", "url", "image"}) {
    const auto found = part.find(name);
    if (!found || found->value().is_null()) continue;
    places.push_back(path_of(*found));
    return;
  }
  places.emplace_back();
}

void add_content(const JsonView& content, Places& places) {
  if (content.value().is_array()) {
    for (const JsonView& part : content.elements()) {
      if (part.value().is_object()) add_part(part, places);
    }
    return;
  }
  if (!content.value().is_string()) return;
  const std::string& text = content.text();
  for (size_t at = text.find(kImagePlace); at != text.npos;
       at = text.find(kImagePlace, at + kImagePlace.size())) {
    places.emplace_back();
  }
}

// Those beside the messages.
std::vector<std::string> named_images(const JsonView& line) {
  std::vector<std::string> named;
  for (const char* const name : {"image", "images"}) {
    const auto found = line.find(name);
    if (!found || found->value().is_null()) continue;
    if (found->value().is_array()) {
      for (const JsonView& each : found->elements()) named.push_back(path_of(each));
    } else {
      named.push_back(path_of(*found));
    }
  }
  return named;
}

}  // namespace

std::vector<std::string> images_of_line(std::string_view line, const std::string& where) {
  const json root = parse_json(line, where, {.max_bytes = kMaxConversationBytes});
  const JsonView view(root, where);
  Places places;
  for (const auto& [messages, content] :
       {std::pair("messages", "content"), {"conversations", "value"}}) {
    const auto found = view.find(messages);
    if (!found || !found->value().is_array()) continue;
    for (const JsonView& message : found->elements()) {
      if (!message.value().is_object()) continue;
      if (const auto said = message.find(content)) add_content(*said, places);
    }
    break;
  }
  const std::vector<std::string> named = named_images(view);
  const auto open = static_cast<size_t>(std::ranges::count(places, ""));
  TRIREME_CHECK(open == named.size(), where, " has ", open, " times ", kImagePlace,
                " without a path, and \"image\" or \"images\" names ", named.size(),
                " files; expected one for each");
  size_t next = 0;
  for (std::string& place : places) {
    if (place.empty()) place = named[next++];
  }
  return places;
}

ChatTokens with_image_tokens(const ChatTokens& text, int32_t image_token, int64_t tokens_per_image,
                             size_t num_images, const std::string& where) {
  const auto found = static_cast<size_t>(std::ranges::count(text.tokens, image_token));
  TRIREME_CHECK(found == num_images, where, " has ", num_images,
                " images, and the chat template writes ", found, " times ", kImagePlace,
                "; expected one for each: give another with --chat-template, or write ",
                kImagePlace, " in texts");
  ChatTokens whole;
  for (size_t i = 0; i < text.tokens.size(); ++i) {
    const bool is_image = text.tokens[i] == image_token;
    const auto count = static_cast<size_t>(is_image ? tokens_per_image : 1);
    whole.tokens.insert(whole.tokens.end(), count, text.tokens[i]);
    whole.learnt.insert(whole.learnt.end(), count, is_image ? 0 : text.learnt[i]);
  }
  return whole;
}

std::vector<int32_t> read_chat_image(const std::filesystem::path& path, int64_t image_size,
                                     const std::string& where) {
  const std::string name = concat(where, ": ", path.string());
  TRIREME_CHECK(is_file(path), name, " is no file; expected a PNG or JPEG image");
  const std::string bytes = read_file(path, kMostEncodedBytes);
  const auto encoded = std::as_bytes(std::span(bytes));
  const ImageSize size = dataset::image_size(encoded, name);
  const DecodedBox decoded = decode_image(encoded, name, whole(size), size);
  std::vector<uint8_t> pixels(static_cast<size_t>(kColours * image_size * image_size));
  resize({decoded.pixels.values.get(), decoded.pixels.size, kColours},
         middle_of(decoded.pixels.size, image_size), {kColours, image_size, image_size},
         {.filter = ResizeFilter::kBicubic, .reads_around = true}, pixels.data());
  return {pixels.begin(), pixels.end()};
}

}  // namespace trireme::dataset
