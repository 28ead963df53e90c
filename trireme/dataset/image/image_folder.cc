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

// The items of a folder that are not hidden. Counts those that are.
std::vector<TreeItem> visible_items_of(const ImageTree& tree, const std::string& folder,
                                       int64_t& num_hidden) {
  std::vector<TreeItem> items = tree.items(folder);
  num_hidden += std::erase_if(items, [&](const TreeItem& item) {
    if (item.name.starts_with('.')) return true;
    require_printable(tree.path_of(folder), item.name);
    return false;
  });
  return items;
}

// Leaves those of one part, in their order.
void keep_part(std::vector<TreeItem>& items, const HeldOut& held_out) {
  const auto digest_of = [](const std::string& name) {
    return checksum(std::as_bytes(std::span(name)));
  };
  const auto count = static_cast<size_t>(static_cast<double>(items.size()) * held_out.share);
  std::vector<std::string> digests;
  for (const TreeItem& item : items) digests.push_back(digest_of(item.name));
  std::ranges::sort(digests);
  std::erase_if(items, [&](const TreeItem& item) {
    const bool is_held_out = count > 0 && digest_of(item.name) <= digests[count - 1];
    return is_held_out != held_out.is_wanted;
  });
}

// A folder may also hold lists, licences and other files. But an image that cannot be read must not
// be skipped without a word.
void check_is_no_image(const TreeItem& item, const std::string& path) {
  constexpr std::string_view kOtherImages[] = {".webp", ".gif",  ".bmp", ".tif", ".tiff",
                                               ".avif", ".heic", ".jp2", ".ppm", ".jfif"};
  TRIREME_CHECK(!item.is_folder, path,
                " is a folder; expected images in it directly below the folder of the class");
  std::string ending = fs::path(item.name).extension();
  std::ranges::transform(ending, ending.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  TRIREME_CHECK(std::ranges::find(kOtherImages, ending) == std::end(kOtherImages), path,
                " is an image in another format; expected .png, .jpg or .jpeg: convert it");
}

class FolderImages final : public ImageSource {
 public:
  FolderImages(const ImageTree& tree, const std::string& root, const ImageOptions& options,
               const ImageSource* like, const HeldOut& held_out)
      : path_(tree.path_of(root)) {
    require_images();
    std::vector<std::string> folders;
    for (const TreeItem& item : visible_items_of(tree, root, num_left_out_)) {
      if (!item.is_folder) {
        const std::string path = (path_ / item.name).string();
        TRIREME_CHECK(!is_image_name(item.name), path,
                      " is in no class; expected images in a folder for each class");
        check_is_no_image(item, path);
        ++num_left_out_;
        continue;
      }
      if (item.name == held_out.no_class) continue;
      folders.push_back(item.name);
    }
    TRIREME_CHECK(!folders.empty(), path_.string(),
                  " has no folders; expected one for each class, with its images");
    classes_ = agreed_classes(folders, path_.string(), like);
    const ClassNumbers numbers = numbers_of(classes_);
    for (const std::string& folder : folders) {
      const std::string below = root.empty() ? folder : concat(root, "/", folder);
      add_class(tree, below, numbers.at(folder), held_out);
    }
    TRIREME_CHECK(!files_.empty(), path_.string(), " has too few images to hold out a share of ",
                  held_out.share, " of each class; raise it, or add images");
    const std::string first = read(files_.front());
    maker_.emplace(options, std::as_bytes(std::span(first)), path_of(files_.front()).string());
    check_shape_like(shape(), path_.string(), like);
  }

  int64_t size() const override { return std::ssize(files_); }
  ImageShape shape() const override { return maker_->shape(); }
  const std::vector<std::string>& classes() const override { return classes_; }
  int64_t num_left_out() const override { return num_left_out_; }

  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override {
    TRIREME_ASSERT(index >= 0 && index < size(), "image ", index, " of ", size());
    const File& file = files_[static_cast<size_t>(index)];
    const std::string bytes = read(file);
    return image_sample(
        maker_->make(std::as_bytes(std::span(bytes)), path_of(file).string(), augmentation),
        file.label);
  }

 private:
  struct File {
    int64_t label = 0;
    std::string name;
    std::shared_ptr<const ByteSource> object;  // of a store; null on this machine
  };

  fs::path path_of(const File& file) const {
    return path_ / classes_[static_cast<size_t>(file.label)] / file.name;
  }
  std::string read(const File& file) const {
    return as_config_error([&] {
      return file.object ? read_all(*file.object, kMostEncodedBytes)
                         : read_file(path_of(file), kMostEncodedBytes);
    });
  }

  void add_class(const ImageTree& tree, const std::string& folder, int64_t label,
                 const HeldOut& held_out) {
    std::vector<TreeItem> images;
    for (TreeItem& item : visible_items_of(tree, folder, num_left_out_)) {
      if (is_image_name(item.name)) {
        images.push_back(std::move(item));
      } else {
        check_is_no_image(item, concat(tree.path_of(folder), "/", item.name));
        ++num_left_out_;
      }
    }
    TRIREME_CHECK(!images.empty(), tree.path_of(folder),
                  " has no images; fill the class or remove its folder");
    if (held_out.share > 0) keep_part(images, held_out);
    for (TreeItem& image : images)
      files_.push_back({label, std::move(image.name), std::move(image.object)});
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
  return open_image_folder(*local_tree(path.string()), "", options, like, held_out);
}

std::unique_ptr<ImageSource> open_image_folder(const ImageTree& tree, const std::string& folder,
                                               const ImageOptions& options, const ImageSource* like,
                                               const HeldOut& held_out) {
  return std::make_unique<FolderImages>(tree, folder, options, like, held_out);
}

}  // namespace trireme::dataset
