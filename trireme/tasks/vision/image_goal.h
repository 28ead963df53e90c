// What image models learn: pixels as numbers, the loss of their logits, and the metrics.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/dataset/image/image_source.h"
#include "trireme/tasks/vision/vision_config.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks::inline internal {

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
  std::vector<double> mean_;       // [C] of pixels from 0 to 1
  std::vector<double> deviation_;  // [C]
};

}  // namespace trireme::tasks::inline internal
