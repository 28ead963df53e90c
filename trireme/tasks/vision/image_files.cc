#include "trireme/tasks/vision/image_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <span>
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
std::string validation_name(const fs::path& data) {
  std::error_code unknown;  // opening the folder says more
  for (const char* name : kValidationNames) {
    if (fs::is_directory(data / name, unknown)) return name;
  }
  return "";
}

fs::path folder_of(const fs::path& data, Part part) {
  if (part == Part::kTraining) return data / "train";
  const std::string name = validation_name(data);
  return data / (name.empty() ? kValidationNames.front() : name);
}

// Whether the folder has folders with images in them: classes without train/ above them.
bool holds_classes(const fs::path& data) {
  std::error_code failure;
  if (fs::is_directory(data / "train", failure)) return false;
  for (const fs::directory_entry& folder : fs::directory_iterator(data, failure)) {
    if (std::ranges::count(kValidationNames, folder.path().filename().string()) > 0) continue;
    const fs::directory_iterator files(folder.path(), failure);  // none where it is a file
    const bool has_images = std::ranges::any_of(files, [](const fs::directory_entry& entry) {
      return dataset::is_image_name(entry.path().filename().native());
    });
    if (has_images) return true;
  }
  return false;
}

bool holds_tar(const fs::path& folder) {
  std::error_code failure;
  const fs::directory_iterator files(folder, failure);
  return !failure && std::ranges::any_of(files, [](const fs::directory_entry& entry) {
    return entry.path().extension() == ".tar";
  });
}

// The format of what is in the folder.
ImageFormat find_format(const fs::path& folder) {
  std::error_code failure;
  TRIREME_CHECK(fs::is_directory(folder, failure), "data.path is ", folder.string(),
                ", which is not a folder; expected one of images (data.format)");
  const auto has = [&](const std::string& name) { return fs::exists(folder / name, failure); };
  if (has(idx_names(Part::kTraining).images)) return ImageFormat::kIdx;
  if (has("data_batch_1.bin")) return ImageFormat::kCifar10;
  if (has("train.bin")) return ImageFormat::kCifar100;
  if (holds_tar(folder / "train")) return ImageFormat::kTar;
  TRIREME_CHECK(fs::is_directory(folder / "train", failure) || holds_classes(folder),
                folder.string(),
                " has no images of a known format; expected train/CLASS/*.png or .jpg, "
                "CLASS/*.png or .jpg, train/*.tar, or the files of MNIST or CIFAR");
  return ImageFormat::kFolder;
}

// Where data.path is: a store, or null for this machine.
std::shared_ptr<const FileStore> store_of(const ImageFiles& config) {
  return remote::open_stores(std::span(&config.data.path, 1));
}

// The same of a URL. Records are read one by one, so they may lie in a store. Folders and archives
// would be read as a whole when a run begins.
ImageFormat find_records(const std::string& url, ImageFormat format, const FilePlace& place) {
  const std::string folder = url + (url.ends_with('/') ? "" : "/");
  const auto has = [&](const std::string& name) { return place.find(folder + name) != nullptr; };
  if (format == ImageFormat::kAuto) {
    if (has(idx_names(Part::kTraining).images)) return ImageFormat::kIdx;
    if (has("data_batch_1.bin")) return ImageFormat::kCifar10;
    if (has("train.bin")) return ImageFormat::kCifar100;
  }
  const bool are_records = format == ImageFormat::kIdx || format == ImageFormat::kCifar10 ||
                           format == ImageFormat::kCifar100;
  TRIREME_CHECK(are_records, "data.path is ", url,
                ", in a store, from which only the records of MNIST's and CIFAR's files are read; "
                "copy folders of images and tar archives to a disk");
  return format;
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
std::shared_ptr<const dataset::ImageSource> open_folders(const ImageFiles& config, Part part,
                                                         const dataset::ImageOptions& options,
                                                         const dataset::ImageSource* like) {
  const fs::path folder = config.data.path;
  const bool is_validation = part == Part::kValidation;
  const std::string beside = validation_name(folder);
  if (is_validation && !beside.empty()) {
    return dataset::open_image_folder(folder / beside, options, like);
  }
  const bool is_flat = holds_classes(folder);
  const double share = beside.empty() ? config.data.validation_share : 0;
  TRIREME_CHECK(!is_validation || share > 0, folder.string(),
                " has no validation images, as it has no folder validation/, and "
                "data.validation_share is 0; raise it, or set train.evaluate_interval to 0");
  return dataset::open_image_folder(
      is_flat ? folder : folder / "train", options, like,
      {.share = share, .is_wanted = is_validation, .no_class = is_flat ? beside : ""});
}

std::shared_ptr<const dataset::ImageSource> open_images(const ImageFiles& config, Part part,
                                                        const dataset::ImageSource* like) {
  const fs::path folder = config.data.path;
  const std::shared_ptr<const FileStore> store = store_of(config);
  ImageFormat format = config.data.format;
  if (store) {
    format = find_records(config.data.path, format, *store);
  } else if (format == ImageFormat::kAuto) {
    format = find_format(folder);
  }
  const dataset::ImageOptions options{.size = config.data.image_size,
                                      .augment = augment_options(config.augment)};
  if (format == ImageFormat::kFolder) return open_folders(config, part, options, like);
  if (format == ImageFormat::kTar) {
    return dataset::open_image_tar({folder_of(folder, part)}, options, like);
  }
  auto records = open_records(config, format, part, like, store ? *store : local_files());
  if (part == Part::kValidation || !changes_images(config.augment)) return records;
  return dataset::augmented(std::move(records), options.augment);
}

}  // namespace

void check_augmentation(const ImageFiles& config) {
  TRIREME_CHECK(config.augment.crop != RandomCrop::kResized || config.data.image_size > 0,
                "augment.crop is \"resized\" and data.image_size 0; set the size that images are "
                "brought to");
}

std::shared_ptr<const dataset::ImageSource> open_training_images(const ImageFiles& config) {
  return open_images(config, Part::kTraining, nullptr);
}

std::shared_ptr<const dataset::ImageSource> open_validation_images(
    const ImageFiles& config, const dataset::ImageSource& training) {
  return open_images(config, Part::kValidation, &training);
}

std::string without(const dataset::ImageSource& images) {
  const std::string left_out = dataset::left_out_text(images.num_left_out());
  return left_out.empty() ? "" : concat(", without ", left_out);
}

}  // namespace trireme::tasks
