#include "trireme/tasks/vision/vision.h"

#include <string>
#include <utility>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/image/image_source.h"
#include "trireme/tasks/vision/image_files.h"
#include "trireme/tasks/vision/image_model.h"
#include "trireme/tasks/vision/image_predictor.h"
#include "trireme/tasks/vision/image_weights.h"
#include "trireme/tasks/vision/trained_images.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/saved_run.h"
#include "trireme/train/task/predictor.h"

namespace trireme::tasks {
namespace {

class VisionTask : public train::Task, public train::PredictingTask {
 public:
  VisionTask() = default;
  VisionTask(const VisionTask& other)
      : Task(other),
        PredictingTask(other),
        problem_(other.problem_),
        tree_(other.tree_),
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
    keys.add("data", problem_.config.pixels);
    keys.add("augment", problem_.config.augment);
    keys.add("augment", problem_.config.blend);
  }
  train::TaskTraits traits() const override {
    const auto [channels, height, width] = problem_.shape;
    return {.data_name = problem_.config.data.path,
            .samples_name = concat("images of ", channels, " x ", height, " x ", width,
                                   training_ ? without(*training_) : ""),
            .unit = "images",
            .sample_bytes = static_cast<double>(problem_.shape.num_values()) + sizeof(int64_t),
            .metrics = ImageGoal::metrics(problem_.config.vit.classes),
            .file_names = {kTrainedImagesFile},
            // Counters of norms, which no layer here reads and many files lack.
            .new_parameters = "*num_batches_tracked"};
  }
  // Made when the keys have their values.
  const train::TaskModel& model() const override {
    if (!model_) model_ = make_image_model(problem_);
    return *model_;
  }
  void check(const train::RunConfig& config) const override {
    check_augmentation(problem_.config);
    Task::check(config);
  }

  void open(bool evaluates) override {
    tree_ = open_image_tree(problem_.config.data);
    training_ = open_training_images(problem_.config, *tree_);
    if (evaluates) validation_ = open_validation_images(problem_.config, *training_, *tree_);
    problem_.take_images(training_->shape(), std::ssize(training_->classes()),
                         problem_.config.data.path);
    check_images(problem_);
  }
  void cancel_reads() const override { tree_->cancel(); }
  const dataset::Source& training() const override { return *training_; }
  const dataset::Source* validation() const override { return validation_.get(); }

  void write_files(const std::filesystem::path& folder) const override {
    write_file_atomically(folder / kTrainedImagesFile, to_json(images()));
  }

  // Of transformers, timm or torchvision.
  void take_keys_of(const std::filesystem::path& folder, train::RunConfig& /*config*/) override {
    const auto found = open_foreign_images(folder);
    if (!found) return;
    VisionConfig& own = problem_.config;
    own.model.family = found->config.model.family;
    own.model.stem = found->config.model.stem;
    own.vit = found->config.vit;
    if (found->config.normalise) own.pixels.normalise = *found->config.normalise;
  }
  std::unique_ptr<checkpoint::TensorSource> open_weights(
      const std::filesystem::path& folder) const override {
    auto found = open_foreign_images(folder);
    if (!found) return nullptr;
    require_same_model(folder, found->config, problem_);
    return std::make_unique<ImageWeights>(folder, std::move(*found), problem_);
  }
  std::vector<std::string> notes_on_weights(const std::filesystem::path& folder,
                                            c10::ScalarType dtype) const override {
    auto found = open_foreign_images(folder);
    if (!found) return {};
    std::vector<std::string> notes = found->config.notes;
    const ImageWeights weights(folder, std::move(*found), problem_);
    if (!weights.prefix().empty())
      notes.push_back(concat("the model's names begin with \"", weights.prefix(),
                             "\", which is left out; ", weights.num_beside(),
                             " other tensors are not read"));
    if (const int64_t num_rounded = weights.num_rounded(dtype); num_rounded > 0)
      notes.push_back(concat(num_rounded, " tensors are rounded to ",
                             name_of(train::kPrecisions, dtype),
                             "; another train.precision keeps every value"));
    return notes;
  }

  std::unique_ptr<train::Predictor> make_predictor(const train::PredictRequest& request) override {
    if (!request.data.empty()) problem_.config.data.path = request.data;
    return make_image_predictor(request, problem_, images_of(request.saved.run_folder()));
  }
  std::unique_ptr<train::Task> make_answering(const train::PredictRequest& request) override {
    auto task = std::make_unique<VisionTask>();
    task->problem_ = answering_problem(problem_, images_of(request.saved.run_folder()));
    return task;
  }
  // Those in the run's folder, or else, as earlier versions did not write them, those of its data.
  TrainedImages images_of(const std::filesystem::path& run_folder) {
    const std::filesystem::path file = run_folder / kTrainedImagesFile;
    if (is_file(file)) return read_trained_images(file);
    open(/*evaluates=*/false);
    return images();
  }

  VisionConfig& config() { return problem_.config; }
  const ImageProblem& problem() const { return problem_; }

 private:
  // The data is open.
  TrainedImages images() const { return {training_->shape(), training_->classes()}; }

  ImageProblem problem_;
  std::shared_ptr<const dataset::ImageTree> tree_;  // of the open data
  std::shared_ptr<const dataset::ImageSource> training_;
  std::shared_ptr<const dataset::ImageSource> validation_;  // null without evaluation
  mutable std::unique_ptr<train::TaskModel> model_;         // of problem_
};

}  // namespace

std::unique_ptr<train::Task> make_vision_task() { return std::make_unique<VisionTask>(); }

VisionConfig& vision_of(train::RunConfig& config) {
  return train::task_of<VisionTask>(config).config();
}
std::unique_ptr<ImageClassifier> make_classifier(const train::RunConfig& config) {
  return make_classifier(image_problem_of(config), config);
}
const ImageProblem& image_problem_of(const train::RunConfig& config) {
  return train::task_of<const VisionTask>(config).problem();
}

TrainedImages trained_images(train::RunConfig& config, const std::filesystem::path& run_folder) {
  return train::task_of<VisionTask>(config).images_of(run_folder);
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
