#include "trireme/model/resnet/resnet.h"

#include <array>
#include <functional>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "trireme/base/error.h"
#include "trireme/model/layers/batch_norm.h"
#include "trireme/model/resnet/convolution.h"

namespace trireme::model {
namespace {

struct ConvShape {
  int64_t in = 0;
  int64_t out = 0;
  int64_t kernel = 1;
  int64_t stride = 1;

  // Output height and width for an input of `size`.
  int64_t size_after(int64_t size) const { return (size + 2 * (kernel / 2) - kernel) / stride + 1; }
};

// The cost of one image, accumulated convolution by convolution.
struct Cost {
  int64_t size = 0;  // height and width of the activations now
  double flops = 0;
  double activations = 0;

  void add(const ConvShape& conv) {
    size = conv.size_after(size);
    const auto values = static_cast<double>(conv.out * size * size);
    flops += 2 * values * static_cast<double>(conv.in * conv.kernel * conv.kernel);
    activations += 2 * values;  // what the norm reads, and what the next convolution reads
  }
};

torch::nn::Conv2d make_conv(const ConvShape& shape) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(shape.in, shape.out, shape.kernel)
                             .stride(shape.stride)
                             .padding(shape.kernel / 2)
                             .bias(false));
  torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
  return conv;
}

// Activations in the network's memory order. Between stages of a pipeline they are sent in the
// usual one, in which convolutions are slower and add in another order.
at::Tensor in_order(const at::Tensor& x, bool channels_last) {
  return channels_last ? x.contiguous(at::MemoryFormat::ChannelsLast) : x;
}

class Stem : public ResNetLayer {
 public:
  Stem(const ResNetConfig& config, const ConvShape& conv)
      : is_small_(config.has_small_stem), channels_last_(config.channels_last) {
    conv1_ = register_module("conv1", make_conv(conv));
    bn1_ = register_module("bn1", BatchNorm(conv.out));
  }
  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor y = bn1_(convolution(in_order(images, channels_last_), conv1_)).relu_();
    return is_small_ ? y : at::max_pool2d(y, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
  }

 private:
  bool is_small_;
  bool channels_last_;
  torch::nn::Conv2d conv1_{nullptr};
  BatchNorm bn1_{nullptr};
};

// The convolutions of a residual block.
struct BlockShape {
  std::vector<ConvShape> branch{};
  std::optional<ConvShape> downsample{};  // of the shortcut

  int64_t width() const { return branch.back().out; }
  void add_to(Cost& cost) const {
    Cost shortcut{.size = cost.size};
    for (const ConvShape& conv : branch) cost.add(conv);
    if (!downsample) return;
    shortcut.add(*downsample);
    cost.flops += shortcut.flops;
    cost.activations += shortcut.activations;
  }
};

// 3 x 3 and 3 x 3, or as a bottleneck 1 x 1, 3 x 3 and 1 x 1 with four times the width.
BlockShape block_shape(int64_t in, int64_t width, int64_t stride, bool is_bottleneck) {
  BlockShape shape;
  if (is_bottleneck) {
    shape.branch = {{in, width}, {width, width, 3, stride}, {width, 4 * width}};
  } else {
    shape.branch = {{in, width, 3, stride}, {width, width, 3}};
  }
  const int64_t out = shape.width();
  if (stride != 1 || in != out) shape.downsample = ConvShape{in, out, 1, stride};
  return shape;
}

// Convolutions, each with a norm, on a residual stream.
class ResidualBlock : public ResNetLayer {
 public:
  ResidualBlock(const BlockShape& shape, bool channels_last) : channels_last_(channels_last) {
    for (const ConvShape& conv : shape.branch) {
      const size_t number = convs_.size() + 1;
      convs_.push_back(register_module(concat("conv", number), make_conv(conv)));
      norms_.push_back(register_module(concat("bn", number), BatchNorm(conv.out)));
    }
    if (!shape.downsample) return;
    downsample_ = register_module("downsample", torch::nn::Sequential(make_conv(*shape.downsample),
                                                                      BatchNorm(shape.width())));
  }
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor x = in_order(input, channels_last_);
    at::Tensor y = x;
    for (size_t i = 0; i < convs_.size(); ++i) {
      y = norms_[i](convolution(y, convs_[i]));
      if (i + 1 < convs_.size()) y.relu_();
    }
    return y.add_(shortcut(x)).relu_();
  }

 private:
  at::Tensor shortcut(const at::Tensor& x) {
    if (downsample_.is_empty()) return x;
    const torch::nn::Conv2d conv(downsample_->ptr<torch::nn::Conv2dImpl>(0));
    return downsample_->at<BatchNormImpl>(1).forward(convolution(x, conv));
  }

  bool channels_last_;
  std::vector<torch::nn::Conv2d> convs_;
  std::vector<BatchNorm> norms_;
  torch::nn::Sequential downsample_{nullptr};
};

// The mean over the image, and a linear layer.
class Head : public ResNetLayer {
 public:
  Head(int64_t width, int64_t classes, bool channels_last) : channels_last_(channels_last) {
    const torch::nn::Linear linear(width, classes);
    weight_ = register_parameter("weight", linear->weight);
    bias_ = register_parameter("bias", linear->bias);
  }
  at::Tensor forward(const at::Tensor& x) override {
    return at::linear(in_order(x, channels_last_).mean({2, 3}), weight_, bias_);
  }

 private:
  bool channels_last_;
  at::Tensor weight_;  // [C, D]
  at::Tensor bias_;    // [C]
};

// Blocks of each of the four groups.
std::array<int, 4> num_blocks(int depth) {
  switch (depth) {
    case 18: return {2, 2, 2, 2};
    case 34:
    case 50: return {3, 4, 6, 3};
    case 101: return {3, 4, 23, 3};
    case 152: return {3, 8, 36, 3};
    default:
      throw ConfigError(concat("a ResNet of depth ", depth, "; expected 18, 34, 50, 101 or 152"));
  }
}

}  // namespace

std::vector<ResNetPart> resnet_parts(const ResNetConfig& config, int64_t image_size) {
  constexpr int64_t kWidth = 64;  // of the first group
  const std::array<int, 4> groups = num_blocks(config.depth);
  const bool is_bottleneck = config.depth >= 50;
  std::vector<ResNetPart> parts;
  Cost cost{.size = image_size};
  const auto add = [&](std::string name, std::function<std::shared_ptr<ResNetLayer>()> make) {
    parts.push_back({std::move(name), std::move(make), cost.flops, cost.activations});
    cost = {.size = cost.size};
  };
  const ConvShape first = config.has_small_stem ? ConvShape{config.channels, kWidth, 3}
                                                : ConvShape{config.channels, kWidth, 7, 2};
  cost.add(first);
  if (!config.has_small_stem) cost.size = (cost.size - 1) / 2 + 1;
  add("", [config, first] { return std::make_shared<Stem>(config, first); });
  int64_t in = kWidth;
  for (size_t group = 0; group < groups.size(); ++group) {
    for (int i = 0; i < groups[group]; ++i) {
      const int64_t stride = group > 0 && i == 0 ? 2 : 1;
      const BlockShape shape = block_shape(in, kWidth << group, stride, is_bottleneck);
      shape.add_to(cost);
      add(concat("layer", group + 1, ".", i), [shape, order = config.channels_last] {
        return std::make_shared<ResidualBlock>(shape, order);
      });
      in = shape.width();
    }
  }
  cost.flops += 2 * static_cast<double>(in * config.classes);
  cost.activations += static_cast<double>(in + config.classes);
  add("fc", [in, classes = config.classes, order = config.channels_last] {
    return std::make_shared<Head>(in, classes, order);
  });
  return parts;
}

}  // namespace trireme::model
