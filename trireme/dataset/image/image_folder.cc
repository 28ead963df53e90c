#include "trireme/dataset/image/image_folder.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/file/as_config_error.h"
#include "trireme/dataset/image/decode.h"
#include "trireme/dataset/image/encoded_images.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

std::string read_encoded(const fs::path& path) {
  return as_config_error([&] { return read_file(path, kMostEncodedBytes); });
}

// The items of a folder that are not hidden. Counts those that are.
std::vector<fs::directory_entry> visible_items_of(const fs::path& folder, int64_t& num_hidden) {
  std::vector<fs::directory_entry> items = items_of(folder);
  num_hidden += std::erase_if(items, [&folder](const fs::directory_entry& item) {
    const std::string name = item.path().filename();
    if (name.starts_with('.')) return true;
    require_printable(folder, name);
    return false;
  });
  return items;
}

// Leaves those of one part, in their order.
void keep_part(std::vector<std::string>& names, const HeldOut& held_out) {
  const auto digest_of = [](const std::string& name) {
    return checksum(std::as_bytes(std::span(name)));
  };
  const auto count = static_cast<size_t>(static_cast<double>(names.size()) * held_out.share);
  std::vector<std::string> digests;
  for (const std::string& name : names) digests.push_back(digest_of(name));
  std::ranges::sort(digests);
  std::erase_if(names, [&](const std::string& name) {
    const bool is_held_out = count > 0 && digest_of(name) <= digests[count - 1];
    return is_held_out != held_out.is_wanted;
  });
}

// A folder may also hold lists, licences and other files. But an image that cannot be read must not
// be skipped without a word.
void check_is_no_image(const fs::directory_entry& item) {
  constexpr std::string_view kOtherImages[] = {".webp", ".gif",  ".bmp", ".tif", ".tiff",
                                               ".avif", ".heic", ".jp2", ".ppm", ".jfif"};
  std::error_code ignored;
  TRIREME_CHECK(!item.is_directory(ignored), item.path().native(),
                " is a folder; expected images in it directly below the folder of the class");
  std::string ending = item.path().extension();
  std::ranges::transform(ending, ending.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  TRIREME_CHECK(std::ranges::find(kOtherImages, ending) == std::end(kOtherImages),
                item.path().native(),
                " is an image in another format; expected .png, .jpg or .jpeg: convert it");
}

class FolderImages final : public ImageSource {
 public:
  FolderImages(fs::path path, const ImageOptions& options, const ImageSource* like,
               const HeldOut& held_out)
      : path_(std::move(path)) {
    require_images();
    std::vector<std::string> folders;
    for (const fs::directory_entry& item : visible_items_of(path_, num_left_out_)) {
      std::error_code ignored;
      if (!item.is_directory(ignored)) {
        TRIREME_CHECK(!is_image_name(item.path().filename().native()), item.path().native(),
                      " is in no class; expected images in a folder for each class");
        check_is_no_image(item);
        ++num_left_out_;
        continue;
      }
      if (item.path().filename() == held_out.no_class) continue;
      folders.push_back(item.path().filename());
    }
    TRIREME_CHECK(!folders.empty(), path_.string(),
                  " has no folders; expected one for each class, with its images");
    classes_ = agreed_classes(folders, path_.string(), like);
    const ClassNumbers numbers = numbers_of(classes_);
    for (const std::string& folder : folders) add_class(folder, numbers.at(folder), held_out);
    TRIREME_CHECK(!files_.empty(), path_.string(), " has too few images to hold out a share of ",
                  held_out.share, " of each class; raise it, or add images");
    const std::string first = read_encoded(file(0));
    maker_.emplace(options, std::as_bytes(std::span(first)), file(0).string());
    check_shape_like(shape(), path_.string(), like);
  }

  int64_t size() const override { return std::ssize(files_); }
  ImageShape shape() const override { return maker_->shape(); }
  const std::vector<std::string>& classes() const override { return classes_; }
  int64_t num_left_out() const override { return num_left_out_; }

  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override {
    TRIREME_ASSERT(index >= 0 && index < size(), "image ", index, " of ", size());
    const fs::path path = file(index);
    const std::string bytes = read_encoded(path);
    return image_sample(maker_->make(std::as_bytes(std::span(bytes)), path.string(), augmentation),
                        files_[static_cast<size_t>(index)].label);
  }

 private:
  struct File {
    int64_t label = 0;
    std::string name;
  };

  fs::path file(int64_t index) const {
    const File& found = files_[static_cast<size_t>(index)];
    return path_ / classes_[static_cast<size_t>(found.label)] / found.name;
  }

  void add_class(const std::string& folder, int64_t label, const HeldOut& held_out) {
    std::vector<std::string> names;
    for (const fs::directory_entry& item : visible_items_of(path_ / folder, num_left_out_)) {
      const std::string name = item.path().filename();
      if (is_image_name(name)) {
        names.push_back(name);
      } else {
        check_is_no_image(item);
        ++num_left_out_;
      }
    }
    TRIREME_CHECK(!names.empty(), (path_ / folder).string(),
                  " has no images; fill the class or remove its folder");
    if (held_out.share > 0) keep_part(names, held_out);
    for (std::string& name : names) files_.push_back({label, std::move(name)});
  }

  fs::path path_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
  std::optional<ImageMaker> maker_;
  int64_t num_left_out_ = 0;
};

}  // namespace

std::unique_ptr<ImageSource> open_image_folder(const fs::path& path, const ImageOptions& options,
                                               const ImageSource* like, const HeldOut& held_out) {
  return std::make_unique<FolderImages>(path, options, like, held_out);
}

}  // namespace trireme::dataset
