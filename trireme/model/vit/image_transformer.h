// A Vision Transformer as a training task sees it: images in, logits out.
// Source: Dosovitskiy et al. 2020, arXiv:2010.11929
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/model/family/parts.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/model/vit/vit_config.h"
#include "trireme/parallel/data/unit.h"

namespace torch::nn {
class Module;
}

namespace trireme::model {

// The input of a part of a model.
struct ImagePartInput {
  int64_t num_images = 0;  // B; may be 0
  // [B, channels, image_size, image_size] of any floating type, normalised. Read only by the part
  // that embeds.
  at::Tensor images{};
  at::Tensor hidden{};  // output of the previous part; undefined for the part that embeds
  // Empty in evaluation, which drops nothing.
  std::optional<TrainingPlace> training{};
};

// A model, or the part of one that a pipeline stage has. Images are whole, the same on every rank
// of the tensor and context axes. With a context axis, each rank computes its own tokens; the first
// rank has the class token and so the logits.
class ImageTransformer {
 public:
  virtual ~ImageTransformer() = default;
  virtual const VitConfig& config() const = 0;
  // Holds the parameters, named as in docs/reference/models.md.
  virtual torch::nn::Module& module() = 0;
  // The parts that run as a whole, in the order of forward: embeddings, blocks, norm, classifier.
  virtual std::vector<parallel::Unit> units() const = 0;
  // From now on, every unit's forward goes through `run`.
  virtual void run_units_with(parallel::RunUnit run) = 0;
  // Sets what the blocks recompute in backward. Before the first call they recompute nothing.
  virtual void set_recompute(const RecomputePlan& plan) = 0;

  // Runs the part's layers, and the last norm if the part has the head.
  // Shapes:     -> hidden states of this rank's tokens: [B, t, D], or under sequence parallelism
  //             their rows on this rank
  // Collective: every rank of the tensor and context axes, with the same input except hidden
  // Throws:     ConfigError when the images are not num_images of the configured shape, or not of a
  //             floating type
  virtual at::Tensor forward_part(const ImagePartInput& in) = 0;
  // The logits from the last part's hidden states. The loss of every rank must depend on them, even
  // if they are empty, and on all ranks of the tensor axis in the same way.
  // Shapes:     hidden as forward_part() returned it -> [B, classes] on the first rank of the
  //             context axis, [0, classes] on its other ranks
  // Comm:       as pick_rows() of num_images rows
  // Collective: every rank of the tensor and context axes. The result is the same on all ranks of
  //             the tensor axis.
  virtual at::Tensor logits(const at::Tensor& hidden, int64_t num_images) = 0;
  // The number of images whose logits this rank has.
  virtual int64_t num_terms(int64_t num_images) const = 0;

  // The logits of a whole model.
  // Shapes: images [B, channels, image_size, image_size] -> as logits()
  at::Tensor logits_of(const at::Tensor& images,
                       const std::optional<TrainingPlace>& training = {}) {
    const int64_t num_images = images.size(0);
    return logits(forward_part({.num_images = num_images, .images = images, .training = training}),
                  num_images);
  }
};

// Builds this rank's part of a model in `dtype`. The counter-based generator draws every parameter,
// keyed by (seed, parameter name, index in the whole parameter). Dropout draws with the same seed.
// Throws: ConfigError when the config is invalid or has no classes, or when the axes cannot share
//         the model
std::unique_ptr<ImageTransformer> make_image_transformer(const VitConfig& config, uint64_t seed,
                                                         at::ScalarType dtype,
                                                         const ModelAxes& axes = {},
                                                         ModelPart part = {});

}  // namespace trireme::model
