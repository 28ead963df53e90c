#include "trireme/tasks/vision/vision.h"

#include <string>
#include <utility>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/tasks/vision/image_data.h"
#include "trireme/tasks/vision/image_goal.h"
#include "trireme/tasks/vision/image_model.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {
namespace {

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
  void check(const train::RunConfig& config) const override {
    const AugmentConfig& augment = problem_.config.augment;
    TRIREME_CHECK(augment.crop != RandomCrop::kResized || problem_.config.data.image_size > 0,
                  "augment.crop is \"resized\" and data.image_size 0; set the size that images are "
                  "brought to");
    model().check(config);
  }

  void open(bool evaluates) override {
    training_ = open_training_images(problem_.config);
    if (evaluates) validation_ = open_validation_images(problem_.config, *training_);
    problem_.shape = training_->shape();
    const int64_t found = std::ssize(training_->classes());
    int64_t& classes = problem_.config.vit.classes;
    if (classes == 0) classes = found;
    TRIREME_CHECK(classes >= found, "model.classes is ", classes, " and ", data_name(), " has ",
                  found, "; set it to 0 or to at least that");
    problem_.config.vit.image_size = problem_.shape.height;
    problem_.config.vit.channels = problem_.shape.channels;
    model().check_images();
  }
  const dataset::Source& training() const override { return *training_; }
  const dataset::Source* validation() const override { return validation_.get(); }
  std::string data_name() const override { return problem_.config.data.path; }
  train::DataIdentity identify(const dataset::Source& source) const override {
    return train::identify_samples(source);
  }
  double sample_bytes() const override {
    return static_cast<double>(problem_.shape.num_values()) + sizeof(int64_t);
  }

  std::vector<std::string> axes() const override { return model().axes(); }
  void check_layout(const train::RunConfig& config) const override { model().check_layout(config); }
  std::vector<model::ParameterPlan> parameters(model::AxisSizes sizes) const override {
    return model().parameters(sizes);
  }
  int64_t num_parameters() const override { return model().num_parameters(); }
  bool has_batch_norm() const override { return model().has_batch_norm(); }
  std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config) const override {
    return model().layer_costs(config);
  }
  std::vector<train::StageEdges> edges(int num_stages) const override {
    return model().edges(num_stages);
  }
  std::unique_ptr<train::StageModel> make_stage(const train::StageRequest& request) const override {
    return model().make_stage(request);
  }

  std::string model_name() const override {
    return concat(name_of(kImageFamilies, problem_.config.model.family), ", ",
                  problem_.config.vit.classes, " classes");
  }
  std::string samples_name() const override {
    const auto [channels, height, width] = problem_.shape;
    return concat("images of ", channels, " x ", height, " x ", width);
  }
  train::Throughput throughput() const override {
    return {.unit = "images", .flops = model().flops()};
  }
  std::vector<train::Metric> metrics() const override {
    return ImageGoal::metrics(problem_.config.vit.classes);
  }
  train::MemoryKeys memory_keys() const override { return model().memory_keys(); }

  VisionConfig& config() { return problem_.config; }
  std::unique_ptr<ImageClassifier> make_classifier(const train::RunConfig& config) const {
    return model().make_classifier(config);
  }

 private:
  // Made when the keys have their values.
  const ImageModel& model() const {
    if (!model_) model_ = make_image_model(problem_);
    return *model_;
  }

  ImageProblem problem_;
  std::shared_ptr<const dataset::ImageSource> training_;
  std::shared_ptr<const dataset::ImageSource> validation_;  // null without evaluation
  mutable std::unique_ptr<ImageModel> model_;               // of problem_
};

}  // namespace

std::unique_ptr<train::Task> make_vision_task() { return std::make_unique<VisionTask>(); }

VisionConfig& vision_of(train::RunConfig& config) {
  return train::task_of<VisionTask>(config).config();
}
std::unique_ptr<ImageClassifier> make_classifier(const train::RunConfig& config) {
  return train::task_of<const VisionTask>(config).make_classifier(config);
}

}  // namespace trireme::tasks
