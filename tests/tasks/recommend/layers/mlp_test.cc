#include "trireme/tasks/recommend/layers/mlp.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::tasks::inline internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Mlp, ReadsItsWidthsFromText) {
  EXPECT_THAT(parse_widths("512,1", "model.top"), ElementsAre(512, 1));
  EXPECT_THAT(parse_widths("", "model.top"), ElementsAre());
  for (const char* const wrong : {"512,", ",1", "0", "-3", "1.5", "1 2", "99999999"}) {
    EXPECT_THAT([&] { parse_widths(wrong, "model.top"); },
                ThrowsMessage<ConfigError>(HasSubstr("model.top")))
        << wrong;
  }
}

TEST(Mlp, HasReluBetweenItsLayers) {
  for (const bool ends_with_relu : {false, true}) {
    Mlp mlp({3, 4, 2}, ends_with_relu);
    mlp.to(at::kDouble);
    const auto p = mlp.named_parameters();
    const at::Tensor x = at::randn({5, 3}, at::kDouble);
    const at::Tensor hidden =
        (at::mm(x, p["layers.0.weight"].t()) + p["layers.0.bias"]).clamp_min(0);
    at::Tensor expected = at::mm(hidden, p["layers.1.weight"].t()) + p["layers.1.bias"];
    if (ends_with_relu) expected = expected.clamp_min(0);
    harness::assert_close(mlp.forward(x).detach(), expected.detach(), 1e-14, 0, "output");
  }
  EXPECT_EQ(mlp_flops({3, 4, 2}), 2 * (3 * 4 + 4 * 2));
}

TEST(CrossNetwork, HasItsPapersFormula) {
  CrossNetwork cross(5, 2, 3);
  cross.to(at::kDouble);
  const auto p = cross.named_parameters();
  const at::Tensor x0 = at::randn({4, 5}, at::kDouble);
  at::Tensor x = x0;
  for (const char* const layer : {"0", "1", "2"}) {
    const std::string i = layer;
    const at::Tensor u = p["up." + i + ".weight"], v = p["down." + i + ".weight"];
    x = x0 * (at::mm(at::mm(x, v.t()), u.t()) + p["up." + i + ".bias"]) + x;
  }
  harness::assert_close(cross.forward(x0).detach(), x.detach(), 1e-13, 0, "output");
}

TEST(DrawValues, DependOnTheSeedAndTheName) {
  Mlp a({200, 300}, false), b({200, 300}, false), c({200, 300}, false);
  draw_values(a, 1);
  draw_values(b, 1);
  draw_values(c, 2);
  const at::Tensor weight = a.named_parameters()["layers.0.weight"].detach();
  harness::assert_same_bits(b.named_parameters()["layers.0.weight"].detach(), weight, "weight");
  EXPECT_FALSE(c.named_parameters()["layers.0.weight"].equal(weight));
  // 60,000 draws: the deviation's own is 1 / sqrt(120,000), five of which are 1.5 %.
  EXPECT_NEAR(weight.std().item<double>() / std::sqrt(2.0 / 500), 1, 0.015);
}

}  // namespace
}  // namespace trireme::tasks::inline internal
