// A family of image models, as the task needs it: the part of train::Task that depends on it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/dataset/image/image_source.h"
#include "trireme/tasks/vision/image_classifier.h"
#include "trireme/tasks/vision/vision_config.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks::inline internal {

// What a model is made for. The number of classes and the shape are known when the data is open.
struct ImageProblem {
  VisionConfig config;
  dataset::ImageShape shape{};
};

// Functions without a comment are as in train::Task.
class ImageModel {
 public:
  virtual ~ImageModel() = default;

  virtual std::vector<std::string> axes() const = 0;
  virtual void check(const train::RunConfig& config) const = 0;
  // Checks the images, whose shape and classes are known now.
  // Throws: ConfigError
  virtual void check_images() const {}
  virtual void check_layout(const train::RunConfig& /*config*/) const {}
  virtual std::vector<model::ParameterPlan> parameters(model::AxisSizes sizes) const = 0;
  virtual int64_t num_parameters() const = 0;
  virtual bool has_batch_norm() const { return false; }
  virtual std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config) const = 0;
  virtual double flops() const = 0;  // of train::Throughput
  virtual std::vector<train::StageEdges> edges(int num_stages) const = 0;
  virtual std::unique_ptr<train::StageModel> make_stage(
      const train::StageRequest& request) const = 0;
  virtual std::unique_ptr<ImageClassifier> make_classifier(
      const train::RunConfig& config) const = 0;
  virtual train::MemoryKeys memory_keys() const { return {}; }
};

// The model that the problem's config names. `problem` must outlive it; its shape and classes may
// be filled in later.
std::unique_ptr<ImageModel> make_image_model(const ImageProblem& problem);

// In resnet_model.cc and vit_model.cc.
std::unique_ptr<ImageModel> make_resnet_model(const ImageProblem& problem);
std::unique_ptr<ImageModel> make_vit_model(const ImageProblem& problem);

}  // namespace trireme::tasks::inline internal
