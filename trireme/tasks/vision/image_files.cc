#include "trireme/tasks/vision/image_files.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file/byte_source.h"
#include "trireme/dataset/image/encoded_images.h"
#include "trireme/dataset/image/image_folder.h"
#include "trireme/dataset/image/image_records.h"
#include "trireme/dataset/image/image_tar.h"
#include "trireme/remote/store_files.h"
#include "trireme/remote/store_settings.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;

enum class Part { kTraining, kValidation };

struct IdxNames {
  const char* images;
  const char* labels;
};

IdxNames idx_names(Part part) {
  return part == Part::kTraining ? IdxNames{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}
                                 : IdxNames{"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
}

std::vector<std::string> cifar_names(ImageFormat format, Part part) {
  if (format == ImageFormat::kCifar100) {
    return {part == Part::kTraining ? "train.bin" : "test.bin"};
  }
  if (part == Part::kValidation) return {"test_batch.bin"};
  std::vector<std::string> names;
  for (int i = 1; i <= 5; ++i) names.push_back(concat("data_batch_", i, ".bin"));
  return names;
}

// The names of folders for validation, the first that is there is taken.
constexpr std::array kValidationNames = {"validation", "val", "valid"};

// "": there is none.
std::string validation_name(const dataset::ImageTree& tree) {
  for (const char* name : kValidationNames) {
    if (tree.has_folder(name)) return name;
  }
  return "";
}

std::string folder_of(const dataset::ImageTree& tree, Part part) {
  if (part == Part::kTraining) return "train";
  const std::string name = validation_name(tree);
  return name.empty() ? kValidationNames.front() : name;
}

bool holds(const dataset::ImageTree& tree, const std::string& folder,
           bool (*is_wanted)(const std::string& name)) {
  try {
    return std::ranges::any_of(tree.items(folder), [&](const dataset::TreeItem& item) {
      return !item.is_folder && is_wanted(item.name);
    });
  } catch (const ConfigError&) {
    return false;  // opening the folder says more
  }
}

// Whether the folder has folders with images in them: classes without train/ above them.
bool holds_classes(const dataset::ImageTree& tree) {
  if (tree.has_folder("train")) return false;
  return std::ranges::any_of(tree.items(""), [&](const dataset::TreeItem& item) {
    if (!item.is_folder || std::ranges::count(kValidationNames, item.name) > 0) return false;
    return holds(tree, item.name,
                 [](const std::string& name) { return dataset::is_image_name(name); });
  });
}

bool holds_tar(const dataset::ImageTree& tree, const std::string& folder) {
  return tree.has_folder(folder) &&
         holds(tree, folder, [](const std::string& name) { return name.ends_with(".tar"); });
}

// The format of what is in the folder.
ImageFormat find_format(const dataset::ImageTree& tree) {
  const auto has = [&](const std::string& name) { return tree.has_file(name); };
  if (has(idx_names(Part::kTraining).images)) return ImageFormat::kIdx;
  if (has("data_batch_1.bin")) return ImageFormat::kCifar10;
  if (has("train.bin")) return ImageFormat::kCifar100;
  if (holds_tar(tree, "train")) return ImageFormat::kTar;
  TRIREME_CHECK(tree.has_folder("train") || holds_classes(tree), tree.path_of(""),
                " has no images of a known format; expected train/CLASS/*.png or .jpg, "
                "CLASS/*.png or .jpg, train/*.tar, or the files of MNIST or CIFAR");
  return ImageFormat::kFolder;
}

dataset::AugmentOptions augment_options(const AugmentConfig& config) {
  return {.resized_crop = config.crop == RandomCrop::kResized,
          .smallest_area = config.smallest_area,
          .crop_padding = config.crop == RandomCrop::kShift ? config.padding : 0,
          .horizontal_flip = config.flip};
}

bool changes_images(const AugmentConfig& config) {
  return config.crop != RandomCrop::kNone || config.flip;
}

std::shared_ptr<const dataset::ImageSource> open_records(const ImageFiles& config,
                                                         ImageFormat format, Part part,
                                                         const dataset::ImageSource* like,
                                                         const FilePlace& place) {
  TRIREME_CHECK(config.data.image_size == 0, "data.image_size is ", config.data.image_size,
                "; images of MNIST's and CIFAR's files keep their size: set it to 0");
  const fs::path folder = config.data.path;
  if (format == ImageFormat::kIdx) {
    const IdxNames names = idx_names(part);
    return dataset::open_idx(folder / names.images, folder / names.labels, /*num_classes=*/0, like,
                             place);
  }
  std::vector<fs::path> files;
  for (const std::string& name : cifar_names(format, part)) files.push_back(folder / name);
  return dataset::open_cifar(
      files, format == ImageFormat::kCifar10 ? dataset::Cifar::k10 : dataset::Cifar::k100, place);
}

// Images in folders of classes. Without a folder for validation, a share of each class is held out.
std::shared_ptr<const dataset::ImageSource> open_folders(const ImageFiles& config,
                                                         const dataset::ImageTree& tree, Part part,
                                                         const dataset::ImageOptions& options,
                                                         const dataset::ImageSource* like) {
  const bool is_validation = part == Part::kValidation;
  const std::string beside = validation_name(tree);
  if (is_validation && !beside.empty()) {
    return dataset::open_image_folder(tree, beside, options, like);
  }
  const bool is_flat = holds_classes(tree);
  const double share = beside.empty() ? config.data.validation_share : 0;
  TRIREME_CHECK(!is_validation || share > 0, tree.path_of(""),
                " has no validation images, as it has no folder validation/, and "
                "data.validation_share is 0; raise it, or set train.evaluate_interval to 0");
  return dataset::open_image_folder(
      tree, is_flat ? "" : "train", options, like,
      {.share = share, .is_wanted = is_validation, .no_class = is_flat ? beside : ""});
}

std::shared_ptr<const dataset::ImageSource> open_images(const ImageFiles& config,
                                                        const dataset::ImageTree& tree, Part part,
                                                        const dataset::ImageSource* like) {
  ImageFormat format = config.data.format;
  if (format == ImageFormat::kAuto) format = find_format(tree);
  const dataset::ImageOptions options{.size = config.data.image_size,
                                      .augment = augment_options(config.augment)};
  if (format == ImageFormat::kFolder) return open_folders(config, tree, part, options, like);
  if (format == ImageFormat::kTar)
    return dataset::open_image_tar(tree, folder_of(tree, part), options, like);
  auto records = open_records(config, format, part, like, tree.place());
  if (part == Part::kValidation || !changes_images(config.augment)) return records;
  return dataset::augmented(std::move(records), options.augment);
}

}  // namespace

void check_augmentation(const ImageFiles& config) {
  TRIREME_CHECK(config.augment.crop != RandomCrop::kResized || config.data.image_size > 0,
                "augment.crop is \"resized\" and data.image_size 0; set the size that images are "
                "brought to");
}

std::shared_ptr<const dataset::ImageTree> open_image_tree(const ImageDataConfig& data) {
  if (is_url(data.path)) {
    std::optional<remote::BlockCacheOptions> cache;
    if (!data.cache.empty())
      cache = {.folder = data.cache, .max_bytes = static_cast<uint64_t>(data.cache_bytes)};
    remote::StoreOptions options{.patience = std::chrono::seconds(data.store_timeout)};
    options.first_patience = std::min(options.first_patience, options.patience);
    return dataset::store_tree(data.path, std::make_shared<const remote::StoreFiles>(
                                              remote::read_store_settings(), options, cache));
  }
  auto tree = dataset::local_tree(data.path);
  TRIREME_CHECK(data.format != ImageFormat::kAuto || tree->has_folder(""), "data.path is ",
                data.path, ", which is not a folder; expected one of images (data.format)");
  return tree;
}

std::shared_ptr<const dataset::ImageSource> open_training_images(const ImageFiles& config,
                                                                 const dataset::ImageTree& tree) {
  return open_images(config, tree, Part::kTraining, nullptr);
}
std::shared_ptr<const dataset::ImageSource> open_training_images(const ImageFiles& config) {
  return open_training_images(config, *open_image_tree(config.data));
}

std::shared_ptr<const dataset::ImageSource> open_validation_images(
    const ImageFiles& config, const dataset::ImageSource& training,
    const dataset::ImageTree& tree) {
  return open_images(config, tree, Part::kValidation, &training);
}
std::shared_ptr<const dataset::ImageSource> open_validation_images(
    const ImageFiles& config, const dataset::ImageSource& training) {
  return open_validation_images(config, training, *open_image_tree(config.data));
}

std::string without(const dataset::ImageSource& images) {
  const std::string left_out = dataset::left_out_text(images.num_left_out());
  return left_out.empty() ? "" : concat(", without ", left_out);
}

}  // namespace trireme::tasks
