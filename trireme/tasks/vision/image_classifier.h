// A whole image model on one rank, in evaluation.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}

namespace trireme::tasks {

class ImageClassifier {
 public:
  virtual ~ImageClassifier() = default;
  virtual torch::nn::Module& module() = 0;
  // Shapes: images_BCHW uint8 -> logits [B, C]
  virtual at::Tensor logits(const at::Tensor& images_BCHW) = 0;
};

}  // namespace trireme::tasks
