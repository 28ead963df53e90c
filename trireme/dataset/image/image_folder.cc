#include "trireme/dataset/image/image_folder.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/as_config_error.h"
#include "trireme/dataset/image/decode.h"
#include "trireme/dataset/image/encoded_images.h"

namespace trireme::dataset {
namespace {

namespace fs = std::filesystem;

std::string read_encoded(const fs::path& path) {
  return as_config_error([&] { return read_file(path, kMostEncodedBytes); });
}

// What is not hidden in a folder.
std::vector<fs::directory_entry> visible_items_of(const fs::path& folder) {
  std::vector<fs::directory_entry> items = items_of(folder);
  std::erase_if(items, [&folder](const fs::directory_entry& item) {
    const std::string name = item.path().filename();
    if (name.starts_with('.')) return true;
    require_printable(folder, name);
    return false;
  });
  return items;
}

class FolderImages final : public ImageSource {
 public:
  FolderImages(fs::path path, const ImageOptions& options, const ImageSource* like)
      : path_(std::move(path)) {
    require_images();
    std::vector<std::string> folders;
    for (const fs::directory_entry& item : visible_items_of(path_)) {
      std::error_code ignored;
      TRIREME_CHECK(item.is_directory(ignored), item.path().native(),
                    " is not a folder; expected one folder for each class");
      folders.push_back(item.path().filename());
    }
    TRIREME_CHECK(!folders.empty(), path_.string(),
                  " has no folders; expected one for each class, with its images");
    classes_ = agreed_classes(folders, path_.string(), like);
    const ClassNumbers numbers = numbers_of(classes_);
    for (const std::string& folder : folders) add_class(folder, numbers.at(folder));
    const std::string first = read_encoded(file(0));
    maker_.emplace(options, std::as_bytes(std::span(first)), file(0).string());
    check_shape_like(shape(), path_.string(), like);
  }

  int64_t size() const override { return std::ssize(files_); }
  ImageShape shape() const override { return maker_->shape(); }
  const std::vector<std::string>& classes() const override { return classes_; }

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

  void add_class(const std::string& folder, int64_t label) {
    const size_t before = files_.size();
    for (const fs::directory_entry& item : visible_items_of(path_ / folder)) {
      const std::string name = item.path().filename();
      TRIREME_CHECK(is_image_name(name), item.path().native(),
                    " is no image by its name; expected .png, .jpg or .jpeg");
      files_.push_back({label, name});
    }
    TRIREME_CHECK(files_.size() > before, (path_ / folder).string(),
                  " has no images; fill the class or remove its folder");
  }

  fs::path path_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
  std::optional<ImageMaker> maker_;
};

}  // namespace

std::unique_ptr<ImageSource> open_image_folder(const fs::path& path, const ImageOptions& options,
                                               const ImageSource* like) {
  return std::make_unique<FolderImages>(path, options, like);
}

}  // namespace trireme::dataset
