// A diffusion transformer as a training task sees it: noisy images with their timesteps and classes
// in, their noise out.
// Source: Peebles and Xie 2022, arXiv:2212.09748
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/model/dit/dit_config.h"
#include "trireme/model/family/parts.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/data/unit.h"

namespace torch::nn {
class Module;
}

namespace trireme::model {

// The input of a part of a model. Images, timesteps and classes are read only by the part that
// embeds.
struct DiffusionPartInput {
  int64_t num_images = 0;  // B; may be 0
  // [B, channels, image_size, image_size] of any floating type: pixels from -1 to 1, with noise.
  at::Tensor images{};
  at::Tensor timesteps{};  // [B] int64
  at::Tensor classes{};    // [B] int64; DitConfig::null_class() for none
  at::Tensor hidden{};     // output of the previous part; undefined for the part that embeds
  std::optional<TrainingPlace> training{};
};

// A model, or the part of one that a pipeline stage has. Images are whole, the same on every rank
// of the tensor and context axes. With a context axis, each rank computes its own tokens.
class DiffusionTransformer {
 public:
  virtual ~DiffusionTransformer() = default;
  virtual const DitConfig& config() const = 0;
  // Holds the parameters, named as in docs/reference/models.md.
  virtual torch::nn::Module& module() = 0;
  // The parts that run as a whole, in the order of forward: embeddings, blocks, head.
  virtual std::vector<parallel::Unit> units() const = 0;
  // From now on, every unit's forward goes through `run`.
  virtual void run_units_with(parallel::RunUnit run) = 0;
  // Sets what the blocks recompute in backward. Before the first call they recompute nothing.
  virtual void set_recompute(const RecomputePlan& plan) = 0;

  // Runs the part's layers.
  // Shapes:     -> what the next part takes as `hidden`; of the part with the head the noise of
  //             this rank's tokens, as own_patches()
  // Comm:       with the head as pick_rows() of all rows
  // Collective: every rank of the tensor and context axes, with the same input except hidden
  // Throws:     ConfigError when the images are not num_images of the configured shape, or not of a
  //             floating type, or when timesteps or classes are not one number for each
  virtual at::Tensor forward_part(const DiffusionPartInput& in) = 0;
  // The patches of this rank's tokens, with the channels of a pixel side by side.
  // Shapes: images [B, C, image_size, image_size] -> [B, t, P * P * C]
  virtual at::Tensor own_patches(const at::Tensor& images) const = 0;
  // The number of images that this rank counts: all on the first rank of the context axis.
  virtual int64_t num_terms(int64_t num_images) const = 0;

  // The noise that a whole model on one rank finds in images.
  // Shapes: images [B, C, image_size, image_size], timesteps and classes [B] -> as images
  at::Tensor noise_in(const at::Tensor& images, const at::Tensor& timesteps,
                      const at::Tensor& classes);
};

// Builds this rank's part of a model in `dtype`. The counter-based generator draws every parameter,
// keyed by (seed, parameter name, index in the whole parameter).
// Throws: ConfigError when the config is invalid or has no classes, or when the axes cannot share
//         the model
std::unique_ptr<DiffusionTransformer> make_diffusion_transformer(const DitConfig& config,
                                                                 uint64_t seed,
                                                                 at::ScalarType dtype,
                                                                 const ModelAxes& axes = {},
                                                                 ModelPart part = {});

}  // namespace trireme::model
