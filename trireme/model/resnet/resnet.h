// Residual networks for images: ResNet-18, 34, 50, 101 and 152. Parameters and buffers have
// torchvision's names, so that its state_dict fits.
// Source: He et al. 2015, arXiv:1512.03385, table 1. A bottleneck has its stride in the 3 x 3
//         convolution, as in torchvision.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace trireme::model {

struct ResNetConfig {
  int depth = 18;               // 18, 34, 50, 101 or 152
  int64_t channels = 3;         // of an image
  int64_t classes = 1000;       // C
  bool has_small_stem = false;  // one 3 x 3 convolution, for images below about 64 pixels
  // Store activations in channels-last format, which makes convolutions faster.
  bool channels_last = true;
};

// A part of the network that runs as a whole.
class ResNetLayer : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;
};

struct ResNetPart {
  std::string name;  // prefix of its parameters' names; "": none
  // A new layer, on the CPU in fp32. Initial values come from torch's default generator:
  // normal(0, sqrt(2 / fan out)) for convolutions.
  std::function<std::shared_ptr<ResNetLayer>()> make;
  double flops = 0;        // of forward, per image
  double activations = 0;  // elements that forward keeps for backward, per image
};

// The stem, the residual blocks and the head, in the order of forward.
// image_size: height and width of the images whose cost is counted.
// Shapes: images [B, channels, H, W] -> logits [B, C]
// Source: initial values: He et al. 2015, arXiv:1502.01852, section 2.2
// Throws: ConfigError for another depth
std::vector<ResNetPart> resnet_parts(const ResNetConfig& config, int64_t image_size);

}  // namespace trireme::model
