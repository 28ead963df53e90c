// What a language model of images has beside its own layers: CLIP's vision transformer, and the
// projector from its width to the language model's, under transformers' names.
// Sources: Radford et al. 2021, arXiv:2103.00020, section 2.4; Liu et al. 2023, arXiv:2304.08485,
//          section 4.1; two layers: Liu et al. 2023, arXiv:2310.03744, section 3.2
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/family/plan.h"
#include "trireme/model/layers/batch_maker.h"
#include "trireme/model/layers/linear.h"
#include "trireme/model/layers/norm.h"
#include "trireme/model/vit/vit.h"
#include "trireme/parallel/data/unit.h"

namespace trireme::model {

// Every rank of the context axis, and of the tensor axis under sequence parallelism, computes the
// features of all images; the tensor axis splits the tower's heads and feed-forward rows.
class ImageInput {
 public:
  // Registers tower and projector in `parent`.
  ImageInput(torch::nn::Module& parent, const ModelConfig& config, const ModelAxes& axes,
             at::ScalarType dtype);

  // In the order of forward: embeddings, the blocks that run, projector.
  std::vector<parallel::Unit> units() const;
  void set_recompute(const RecomputePlan& plan);
  // The features of each patch, in the order of images, rows and columns.
  // units: numbers of units(), which `run` gets
  // Shapes:     images [n, 3, image_size, image_size] -> [n * num_patches, D]; n may be 0
  // Collective: every rank of the tensor axis. The result is the same on all of them, and every
  //             rank needs the whole gradient of it.
  at::Tensor features(const at::Tensor& images, const parallel::RunUnit& run,
                      std::span<const size_t> units);

 private:
  at::Tensor project(const at::Tensor& x_nTD) const;

  BatchMaker batches_;
  int64_t num_tokens_;  // of an image: the class token, then the patches
  std::shared_ptr<VitEmbeddings> embeddings_;
  std::shared_ptr<LayerNorm> pre_norm_;
  std::vector<std::shared_ptr<VitBlock>> blocks_;  // those that run
  std::shared_ptr<Linear> linear_1_;               // [D, D of the tower]
  std::shared_ptr<Linear> linear_2_;               // [D, D]
  std::vector<at::Tensor> unused_;                 // parameters behind the features
};

// Adds the parameters of both, as ImageInput registers them.
// prefix: of the names, such as "model."
void add_image_input(ModelPlan& plan, const std::string& prefix);

// Floating-point operations of the matrix products in forward and backward of an image; beside
// adapters, of its forward.
double flops_of_image(const ModelConfig& config);

// Bytes of the tensors that the forward of images keeps for its backward: a tower that learns
// nothing keeps none.
// forward.sequence, forward.context: not read, since every such rank has all images
double kept_bytes_of_images(const ModelConfig& config, const VitForward& forward,
                            bool trains_tower);

// Throws: ConfigError with the key, the value found and the value expected
void check_vision(const ModelConfig& config);

}  // namespace trireme::model
