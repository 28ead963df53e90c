#include "trireme/model/resnet/resnet.h"

#include <memory>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::model {
namespace {

struct Size {
  int depth;
  int64_t parameters;
  double gflops;  // of images of 224 x 224, two per multiplication
};

// The numbers of torchvision's documentation, which counts a multiplication and an addition as one.
constexpr Size kSizes[] = {{18, 11689512, 2 * 1.81},
                           {34, 21797672, 2 * 3.66},
                           {50, 25557032, 2 * 4.09},
                           {101, 44549160, 2 * 7.80},
                           {152, 60192808, 2 * 11.51}};

TEST(ResNet, HasTheSizesOfThePaper) {
  for (const auto& [depth, parameters, gflops] : kSizes) {
    int64_t found = 0;
    double flops = 0;
    for (const ResNetPart& part : resnet_parts({.depth = depth}, 224)) {
      for (const at::Tensor& parameter : part.make()->parameters()) found += parameter.numel();
      flops += part.flops;
      EXPECT_GT(part.activations, 0) << part.name;
    }
    EXPECT_EQ(found, parameters) << depth;
    EXPECT_NEAR(flops / 1e9, gflops, 0.02) << depth;
  }
}

TEST(ResNet, EveryKindOfStemGivesLogits) {
  for (const bool small : {false, true}) {
    for (const int64_t size : {32, 33}) {
      at::Tensor x = at::zeros({2, 1, size, size});
      for (const ResNetPart& part :
           resnet_parts({.channels = 1, .classes = 7, .has_small_stem = small}, size)) {
        const std::shared_ptr<ResNetLayer> layer = part.make();
        layer->eval();
        x = layer->forward(x);
      }
      EXPECT_EQ(x.sizes(), (at::IntArrayRef{2, 7}));
    }
  }
}

// A stage of a pipeline gets its input in the usual memory order.
TEST(ResNet, APartHasTheSameBitsBehindAStage) {
  at::Tensor x = at::rand({3, 3, 40, 40}), y = x;
  for (const ResNetPart& part : resnet_parts({.classes = 7, .has_small_stem = true}, 40)) {
    const std::shared_ptr<ResNetLayer> layer = part.make();
    layer->eval();
    x = layer->forward(x);
    y = layer->forward(y.contiguous());
    EXPECT_TRUE(at::equal(x, y)) << part.name;
    EXPECT_EQ(x.strides(), y.strides()) << part.name;
  }
}

TEST(ResNet, RefusesOtherDepths) {
  EXPECT_EQ(harness::message_of<ConfigError>([] { resnet_parts({.depth = 20}, 32); }),
            "a ResNet of depth 20; expected 18, 34, 50, 101 or 152");
}

}  // namespace
}  // namespace trireme::model
