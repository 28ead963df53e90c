// The families of image models, their training goal (normalised pixels, the loss of their logits,
// and the metrics), and a whole image model on one rank, in evaluation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/dataset/image/image_source.h"
#include "trireme/tasks/vision/vision_config.h"
#include "trireme/train/task/task.h"

namespace torch::nn {
class Module;
}

namespace trireme::tasks {

// Of pixels from 0 to 1, for each channel.
struct PixelStatistics {
  std::vector<double> mean;
  std::vector<double> deviation;
};
PixelStatistics pixel_statistics(Normalisation normalise, int64_t channels);

// Normalised pixels, the loss of their logits, and the metrics.
class ImageGoal {
 public:
  // seed: of the shares of mixup
  ImageGoal(const VisionConfig& config, const dataset::ImageShape& shape, uint64_t seed);

  // Normalised pixels. In training each image is blended with its partner, see mixup_share().
  // Shapes: images_BCHW uint8 -> [B, C, H, W] of `dtype`
  at::Tensor prepare(const at::Tensor& images_BCHW, at::ScalarType dtype,
                     const train::StageInput& batch) const;

  // The sum of cross-entropies, in fp32 at least. In training with label smoothing, and between
  // the labels of the two images that were blended.
  // Shapes: logits_BC -> scalar; reads "label" [B] int64 of the batch
  // Source: label smoothing: Szegedy et al. 2015, arXiv:1512.00567, section 7
  at::Tensor loss_sum(const at::Tensor& logits_BC, const train::StageInput& batch) const;

  // Accuracy, and with more than five classes accuracy of the five largest logits.
  static std::vector<train::Metric> metrics(int64_t num_classes);
  // Shapes: logits_BC -> the states of metrics(C)
  static at::Tensor metric_states(const at::Tensor& logits_BC, const train::StageInput& batch);

  // The first image's share of each blend in a microbatch, drawn from Beta(mixup, mixup) by the
  // microbatch's place, which no layout changes. Image i's partner is image B - 1 - i. 1 without
  // mixup and in evaluation.
  // Source: Zhang et al. 2017, arXiv:1710.09412, section 2; the draw: Johnk 1964, "Erzeugung von
  //         betaverteilten und gammaverteilten Zufallszahlen"
  double mixup_share(const train::StageInput& batch) const;

 private:
  double mixup_;
  double label_smoothing_;
  uint64_t seed_;
  PixelStatistics pixels_;
};

// A whole model on one rank, in evaluation.
class ImageClassifier {
 public:
  virtual ~ImageClassifier() = default;
  virtual torch::nn::Module& module() = 0;
  // Shapes: images_BCHW uint8 -> logits [B, C]
  virtual at::Tensor logits(const at::Tensor& images_BCHW) = 0;
};

// The problem that a model is built for. The number of classes and the shape are known when the
// data is open.
struct ImageProblem {
  VisionConfig config;
  dataset::ImageShape shape{};
  // The model's last stage writes logits, as "scores", and reads no labels.
  bool is_answering = false;

  // Sets what images of that shape, with that many classes, decide.
  // data: their name, for messages
  // Throws: ConfigError when the config has fewer classes
  void take_images(const dataset::ImageShape& of_images, int64_t num_classes,
                   const std::string& data);
};

// The model of the task that the problem's config names. `problem` must outlive it; its shape and
// classes may be filled in later.
std::unique_ptr<train::TaskModel> make_image_model(const ImageProblem& problem);
// Checks the images, whose shape and classes are known now.
// Throws: ConfigError
void check_images(const ImageProblem& problem);
// "vit, 10 classes".
std::string name_of_model(const ImageProblem& problem);
// The whole model, for one rank. `problem` must outlive it.
std::unique_ptr<ImageClassifier> make_classifier(const ImageProblem& problem,
                                                 const train::RunConfig& config);

// One family's; in resnet_model.cc and vit_model.cc.
std::unique_ptr<train::TaskModel> make_resnet_model(const ImageProblem& problem);
std::unique_ptr<ImageClassifier> make_resnet_classifier(const ImageProblem& problem,
                                                        const train::RunConfig& config);
std::unique_ptr<train::TaskModel> make_vit_model(const ImageProblem& problem);
void check_vit_images(const ImageProblem& problem);
std::unique_ptr<ImageClassifier> make_vit_classifier(const ImageProblem& problem,
                                                     const train::RunConfig& config);

}  // namespace trireme::tasks
