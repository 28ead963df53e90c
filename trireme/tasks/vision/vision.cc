#include "trireme/tasks/vision/vision.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/dataset/image/encoded_images.h"
#include "trireme/dataset/image/image_folder.h"
#include "trireme/dataset/image/image_records.h"
#include "trireme/dataset/image/image_source.h"
#include "trireme/dataset/image/image_tar.h"
#include "trireme/tasks/vision/image_model.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/saved_run.h"

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

// Falls back to other common names when there is no validation/.
fs::path folder_of(const fs::path& data, Part part) {
  if (part == Part::kTraining) return data / "train";
  std::error_code unknown;  // opening the folder says more
  for (const char* other : {"val", "valid"}) {
    if (!fs::exists(data / "validation", unknown) && fs::is_directory(data / other, unknown))
      return data / other;
  }
  return data / "validation";
}

bool has_parts(const fs::path& data) {
  std::error_code unknown;
  return std::ranges::any_of(
      std::array{"train", "validation", "val", "valid"},
      [&](const char* part) { return fs::is_directory(data / part, unknown); });
}

// Whether the folder has folders with images in them: classes without train/ above them.
bool holds_classes(const fs::path& data) {
  std::error_code failure;
  if (has_parts(data)) return false;
  for (const fs::directory_entry& folder : fs::directory_iterator(data, failure)) {
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

dataset::AugmentOptions augment_options(const AugmentConfig& config) {
  return {.resized_crop = config.crop == RandomCrop::kResized,
          .smallest_area = config.smallest_area,
          .crop_padding = config.crop == RandomCrop::kShift ? config.padding : 0,
          .horizontal_flip = config.flip};
}

bool changes_images(const AugmentConfig& config) {
  return config.crop != RandomCrop::kNone || config.flip;
}

std::shared_ptr<const dataset::ImageSource> open_records(const VisionConfig& config,
                                                         ImageFormat format, Part part,
                                                         const dataset::ImageSource* like) {
  TRIREME_CHECK(config.data.image_size == 0, "data.image_size is ", config.data.image_size,
                "; images of MNIST's and CIFAR's files keep their size: set it to 0");
  const fs::path folder = config.data.path;
  if (format == ImageFormat::kIdx) {
    const IdxNames names = idx_names(part);
    return dataset::open_idx(folder / names.images, folder / names.labels, /*num_classes=*/0, like);
  }
  std::vector<fs::path> files;
  for (const std::string& name : cifar_names(format, part)) files.push_back(folder / name);
  return dataset::open_cifar(
      files, format == ImageFormat::kCifar10 ? dataset::Cifar::k10 : dataset::Cifar::k100);
}

std::shared_ptr<const dataset::ImageSource> open_images(const VisionConfig& config, Part part,
                                                        const dataset::ImageSource* like) {
  const fs::path folder = config.data.path;
  const ImageFormat format =
      config.data.format == ImageFormat::kAuto ? find_format(folder) : config.data.format;
  const dataset::ImageOptions options{.size = config.data.image_size,
                                      .augment = augment_options(config.augment)};
  if (format == ImageFormat::kFolder && holds_classes(folder)) {
    const double share = config.data.validation_share;
    TRIREME_CHECK(part == Part::kTraining || share > 0, folder.string(),
                  " has no validation images, as data.validation_share is 0; raise it, or set "
                  "train.evaluate_interval to 0");
    return dataset::open_image_folder(folder, options, like,
                                      {.share = share, .is_wanted = part == Part::kValidation});
  }
  if (format == ImageFormat::kFolder) {
    return dataset::open_image_folder(folder_of(folder, part), options, like);
  }
  if (format == ImageFormat::kTar) {
    return dataset::open_image_tar({folder_of(folder, part)}, options, like);
  }
  auto records = open_records(config, format, part, like);
  if (part == Part::kValidation || !changes_images(config.augment)) return records;
  return dataset::augmented(std::move(records), options.augment);
}

class VisionTask : public train::Task {
 public:
  VisionTask() = default;
  VisionTask(const VisionTask& other)
      : Task(other),
        problem_(other.problem_),
        training_(other.training_),
        validation_(other.validation_) {}
  VisionTask& operator=(const VisionTask&) = delete;

  std::unique_ptr<train::Task> clone() const override {
    return std::make_unique<VisionTask>(*this);
  }

  void add_keys(train::Keys& keys) override {
    keys.add("model", problem_.config.model);
    keys.add("model", problem_.config.vit);
    keys.add("data", problem_.config.data);
    keys.add("augment", problem_.config.augment);
  }
  train::TaskTraits traits() const override {
    const auto [channels, height, width] = problem_.shape;
    return {.data_name = problem_.config.data.path,
            .samples_name = concat("images of ", channels, " x ", height, " x ", width),
            .unit = "images",
            .sample_bytes = static_cast<double>(problem_.shape.num_values()) + sizeof(int64_t),
            .metrics = ImageGoal::metrics(problem_.config.vit.classes)};
  }
  // Made when the keys have their values.
  const train::TaskModel& model() const override {
    if (!model_) model_ = make_image_model(problem_);
    return *model_;
  }
  void check(const train::RunConfig& config) const override {
    const AugmentConfig& augment = problem_.config.augment;
    TRIREME_CHECK(augment.crop != RandomCrop::kResized || problem_.config.data.image_size > 0,
                  "augment.crop is \"resized\" and data.image_size 0; set the size that images are "
                  "brought to");
    Task::check(config);
  }

  void open(bool evaluates) override {
    training_ = open_training_images(problem_.config);
    if (evaluates) validation_ = open_validation_images(problem_.config, *training_);
    problem_.shape = training_->shape();
    const int64_t found = std::ssize(training_->classes());
    int64_t& classes = problem_.config.vit.classes;
    if (classes == 0) classes = found;
    TRIREME_CHECK(classes >= found, "model.classes is ", classes, " and ",
                  problem_.config.data.path, " has ", found, "; set it to 0 or to at least that");
    problem_.config.vit.image_size = problem_.shape.height;
    problem_.config.vit.channels = problem_.shape.channels;
    check_images(problem_);
  }
  const dataset::Source& training() const override { return *training_; }
  const dataset::Source* validation() const override { return validation_.get(); }

  VisionConfig& config() { return problem_.config; }
  const ImageProblem& problem() const { return problem_; }

 private:
  ImageProblem problem_;
  std::shared_ptr<const dataset::ImageSource> training_;
  std::shared_ptr<const dataset::ImageSource> validation_;  // null without evaluation
  mutable std::unique_ptr<train::TaskModel> model_;         // of problem_
};

}  // namespace

std::shared_ptr<const dataset::ImageSource> open_training_images(const VisionConfig& config) {
  return open_images(config, Part::kTraining, nullptr);
}

std::shared_ptr<const dataset::ImageSource> open_validation_images(
    const VisionConfig& config, const dataset::ImageSource& training) {
  return open_images(config, Part::kValidation, &training);
}

std::unique_ptr<train::Task> make_vision_task() { return std::make_unique<VisionTask>(); }

VisionConfig& vision_of(train::RunConfig& config) {
  return train::task_of<VisionTask>(config).config();
}
std::unique_ptr<ImageClassifier> make_classifier(const train::RunConfig& config) {
  return make_classifier(train::task_of<const VisionTask>(config).problem(), config);
}

const dataset::ImageSource& TrainedClassifier::images() const {
  return dynamic_cast<const dataset::ImageSource&>(*config.task->validation());
}

TrainedClassifier load_trained_classifier(const std::filesystem::path& path, train::Weights weights,
                                          const std::string& data_path) {
  const train::SavedModel saved(path, weights);
  TrainedClassifier trained{
      .config = train::parse_saved_model(saved.config(), saved.folder().string(),
                                         train::default_config(train::TaskTable(&kVision, 1))),
      .classifier = nullptr};
  if (!data_path.empty()) vision_of(trained.config).data.path = data_path;
  trained.config.task->open(/*evaluates=*/true);
  saved.require_room(trained.config.task->model().traits().num_parameters, trained.config.dtype());
  trained.classifier = make_classifier(trained.config);
  saved.load(trained.classifier->module());
  return trained;
}

}  // namespace trireme::tasks
