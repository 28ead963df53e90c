#include "trireme/tasks/vision/image_model.h"

#include <cmath>

#include <ATen/ATen.h>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/mesh/probe.h"
#include "trireme/train/task/task_metrics.h"

namespace trireme::tasks {
namespace {

constexpr int64_t kTop = 5;

// Statistics of ImageNet's training images: red, green, blue.
constexpr double kImageNetMean[] = {0.485, 0.456, 0.406};
constexpr double kImageNetDeviation[] = {0.229, 0.224, 0.225};

// x / (x + y) of x = u^(1/a) and y = v^(1/a) whose sum is at most 1 is Beta(a, a). A pair is such
// with a probability of at least 1/2 for a <= 1.
double draw_beta(double a, RandomKey key) {
  for (uint64_t i = 0;; i += 2) {
    const double log_x = std::log(1 - random_uniform(key, i)) / a;
    const double log_y = std::log(1 - random_uniform(key, i + 1)) / a;
    if (std::exp(log_x) + std::exp(log_y) > 1) continue;
    return 1 / (1 + std::exp(log_y - log_x));  // also where x and y underflow
  }
}

at::Tensor wide(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
}

bool is_vit(const ImageProblem& problem) {
  return problem.config.model.family == ImageFamily::kVit;
}

}  // namespace

PixelStatistics pixel_statistics(Normalisation normalise, int64_t channels) {
  const auto C = static_cast<size_t>(channels);
  const bool is_coloured = C == std::size(kImageNetMean);
  PixelStatistics pixels{.mean = std::vector<double>(C, 0.5),
                         .deviation = std::vector<double>(C, 0.5)};
  if (normalise == Normalisation::kHalf) return pixels;
  for (size_t c = 0; c < C; ++c) {
    // Grey has green's, which is most of it.
    pixels.mean[c] = kImageNetMean[is_coloured ? c : 1];
    pixels.deviation[c] = kImageNetDeviation[is_coloured ? c : 1];
  }
  return pixels;
}

ImageGoal::ImageGoal(const VisionConfig& config, const dataset::ImageShape& shape, uint64_t seed)
    : mixup_(config.blend.mixup),
      label_smoothing_(config.blend.label_smoothing),
      seed_(seed),
      pixels_(pixel_statistics(config.pixels.normalise, shape.channels)) {}

double ImageGoal::mixup_share(const train::StageInput& batch) const {
  if (mixup_ == 0 || !batch.training) return 1;
  return draw_beta(mixup_, random_key(seed_, concat("mixup/", batch.training->step, "/",
                                                    batch.training->first_sample)));
}

at::Tensor ImageGoal::prepare(const at::Tensor& images_BCHW, at::ScalarType dtype,
                              const train::StageInput& batch) const {
  const int64_t C = std::ssize(pixels_.mean);
  const auto per_channel = [&](const std::vector<double>& values) {
    return at::tensor(values, at::kDouble).to(images_BCHW.device(), dtype).view({1, C, 1, 1});
  };
  at::Tensor x = images_BCHW.to(dtype).div_(255).sub_(per_channel(pixels_.mean));
  x.div_(per_channel(pixels_.deviation));
  const double share = mixup_share(batch);
  return share == 1 ? x : at::lerp(x.flip(0), x, share);
}

at::Tensor ImageGoal::loss_sum(const at::Tensor& logits_BC, const train::StageInput& batch) const {
  const at::Tensor logits = verify::probe("logits", wide(logits_BC)), labels_B = batch["label"];
  const double smoothing = batch.training ? label_smoothing_ : 0;
  const auto loss = [&](const at::Tensor& targets_B) {
    constexpr int64_t kNone = -100;  // no label is left out
    return at::cross_entropy_loss(logits, targets_B, {}, at::Reduction::Sum, kNone, smoothing);
  };
  const double share = mixup_share(batch);
  if (share == 1) return loss(labels_B);
  return share * loss(labels_B) + (1 - share) * loss(labels_B.flip(0));
}

std::vector<train::Metric> ImageGoal::metrics(int64_t num_classes) {
  std::vector<train::Metric> metrics = {{.name = "accuracy"}};
  if (num_classes > kTop) metrics.push_back({.name = "top5_accuracy"});
  return metrics;
}

at::Tensor ImageGoal::metric_states(const at::Tensor& logits_BC, const train::StageInput& batch) {
  at::Tensor accuracy = train::accuracy_state(logits_BC, batch["label"]);
  if (logits_BC.size(1) <= kTop) return accuracy;
  return at::cat({accuracy, train::top_k_accuracy_state(logits_BC, batch["label"], kTop)});
}

void ImageProblem::take_images(const dataset::ImageShape& of_images, int64_t num_classes,
                               const std::string& data) {
  shape = of_images;
  int64_t& classes = config.vit.classes;
  if (classes == 0) classes = num_classes;
  TRIREME_CHECK(classes >= num_classes, "model.classes is ", classes, " and ", data, " has ",
                num_classes, "; set it to 0 or to at least that");
  config.vit.image_size = shape.height;
  config.vit.channels = shape.channels;
}

std::unique_ptr<train::TaskModel> make_image_model(const ImageProblem& problem) {
  return is_vit(problem) ? make_vit_model(problem) : make_resnet_model(problem);
}

std::string name_of_model(const ImageProblem& problem) {
  return concat(name_of(kImageFamilies, problem.config.model.family), ", ",
                problem.config.vit.classes, " classes");
}

void check_images(const ImageProblem& problem) {
  if (is_vit(problem)) check_vit_images(problem);
}

std::unique_ptr<ImageClassifier> make_classifier(const ImageProblem& problem,
                                                 const train::RunConfig& config) {
  return is_vit(problem) ? make_vit_classifier(problem, config)
                         : make_resnet_classifier(problem, config);
}

}  // namespace trireme::tasks
