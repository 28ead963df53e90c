#include "trireme/model/resnet/resnet.h"

#include <array>

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "trireme/base/error.h"
#include "trireme/model/layers/batch_norm.h"

namespace trireme::model {
namespace {

// The cost of one image, accumulated as layers are added.
struct Cost {
  int64_t size = 0;  // height and width of the activations now
  double flops = 0;
  double activations = 0;
};

torch::nn::Conv2d make_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, Cost& cost) {
  torch::nn::Conv2d conv(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
  torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
  cost.size = (cost.size + 2 * (kernel / 2) - kernel) / stride + 1;
  const auto values = static_cast<double>(out * cost.size * cost.size);
  cost.flops += 2 * values * static_cast<double>(in * kernel * kernel);
  cost.activations += 2 * values;  // what the norm reads, and what the next convolution reads
  return conv;
}

class Stem : public ResNetLayer {
 public:
  Stem(const ResNetConfig& config, int64_t width, Cost& cost)
      : is_small_(config.has_small_stem), channels_last_(config.channels_last) {
    conv1_ = register_module("conv1", is_small_ ? make_conv(config.channels, width, 3, 1, cost)
                                                : make_conv(config.channels, width, 7, 2, cost));
    bn1_ = register_module("bn1", BatchNorm(width));
    if (!is_small_) cost.size = (cost.size - 1) / 2 + 1;
  }
  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor x =
        channels_last_ ? images.contiguous(at::MemoryFormat::ChannelsLast) : images;
    const at::Tensor y = bn1_(conv1_(x)).relu_();
    return is_small_ ? y : at::max_pool2d(y, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
  }

 private:
  bool is_small_;
  bool channels_last_;
  torch::nn::Conv2d conv1_{nullptr};
  BatchNorm bn1_{nullptr};
};

// Convolutions, each with a norm, on a residual stream: 3 x 3 and 3 x 3, or as a bottleneck 1 x 1,
// 3 x 3 and 1 x 1 with four times the width.
class ResidualBlock : public ResNetLayer {
 public:
  ResidualBlock(int64_t in, int64_t width, int64_t stride, bool is_bottleneck, Cost& cost) {
    const int64_t out = is_bottleneck ? 4 * width : width;
    Cost shortcut{.size = cost.size};
    if (is_bottleneck) {
      add(in, width, 1, 1, cost);
      add(width, width, 3, stride, cost);
      add(width, out, 1, 1, cost);
    } else {
      add(in, width, 3, stride, cost);
      add(width, out, 3, 1, cost);
    }
    if (stride == 1 && in == out) return;
    downsample_ = register_module(
        "downsample",
        torch::nn::Sequential(make_conv(in, out, 1, stride, shortcut), BatchNorm(out)));
    cost.flops += shortcut.flops;
    cost.activations += shortcut.activations;
  }
  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = x;
    for (size_t i = 0; i < convs_.size(); ++i) {
      y = norms_[i](convs_[i](y));
      if (i + 1 < convs_.size()) y.relu_();
    }
    return y.add_(downsample_.is_empty() ? x : downsample_->forward(x)).relu_();
  }

 private:
  void add(int64_t in, int64_t out, int64_t kernel, int64_t stride, Cost& cost) {
    const size_t number = convs_.size() + 1;
    convs_.push_back(
        register_module(concat("conv", number), make_conv(in, out, kernel, stride, cost)));
    norms_.push_back(register_module(concat("bn", number), BatchNorm(out)));
  }

  std::vector<torch::nn::Conv2d> convs_;
  std::vector<BatchNorm> norms_;
  torch::nn::Sequential downsample_{nullptr};
};

// The mean over the image, and a linear layer.
class Head : public ResNetLayer {
 public:
  Head(int64_t width, int64_t classes, Cost& cost) {
    const torch::nn::Linear linear(width, classes);
    weight_ = register_parameter("weight", linear->weight);
    bias_ = register_parameter("bias", linear->bias);
    cost.flops += 2 * static_cast<double>(width * classes);
    cost.activations += static_cast<double>(width + classes);
  }
  at::Tensor forward(const at::Tensor& x) override {
    return at::linear(x.mean({2, 3}), weight_, bias_);
  }

 private:
  at::Tensor weight_;  // [C, D]
  at::Tensor bias_;    // [C]
};

// Blocks of each of the four groups.
std::array<int, 4> num_blocks(int depth) {
  switch (depth) {
    case 18: return {2, 2, 2, 2};
    case 34:
    case 50: return {3, 4, 6, 3};
    default: throw ConfigError(concat("a ResNet of depth ", depth, "; expected 18, 34 or 50"));
  }
}

}  // namespace

std::vector<ResNetPart> make_resnet(const ResNetConfig& config, int64_t image_size) {
  constexpr int64_t kWidth = 64;  // of the first group
  const std::array<int, 4> groups = num_blocks(config.depth);
  const bool is_bottleneck = config.depth >= 50;
  std::vector<ResNetPart> parts;
  Cost cost{.size = image_size};
  const auto add = [&](std::string name, std::shared_ptr<ResNetLayer> layer) {
    parts.push_back({std::move(name), std::move(layer), cost.flops, cost.activations});
    cost = {.size = cost.size};
  };
  add("", std::make_shared<Stem>(config, kWidth, cost));
  int64_t in = kWidth;
  for (size_t group = 0; group < groups.size(); ++group) {
    const int64_t width = kWidth << group;
    for (int i = 0; i < groups[group]; ++i) {
      const int64_t stride = group > 0 && i == 0 ? 2 : 1;
      add(concat("layer", group + 1, ".", i),
          std::make_shared<ResidualBlock>(in, width, stride, is_bottleneck, cost));
      in = is_bottleneck ? 4 * width : width;
    }
  }
  add("fc", std::make_shared<Head>(in, config.classes, cost));
  return parts;
}

}  // namespace trireme::model
