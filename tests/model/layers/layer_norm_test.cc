#include "trireme/model/layers/norm.h"

#include <gtest/gtest.h>

#include "tests/harness/gradients.h"

namespace trireme::model {
namespace {

using namespace harness;

TEST(LayerNorm, EqualsItsFormula) {
  LayerNorm norm({.width = 7, .norm_epsilon = 1e-5}, {}, at::kDouble);
  norm.weight_D.data().copy_(values({7}, 0.9));
  norm.bias_D.data().copy_(values({7}, 0.4));
  assert_same_function([&](const Tensors& in) { return norm.forward(in[0]); },
                       [&](const Tensors& in) {
                         const at::Tensor centred = in[0] - in[0].mean(-1, true);
                         const at::Tensor variance = centred.square().mean(-1, true);
                         return centred * at::rsqrt(variance + 1e-5) * norm.weight_D + norm.bias_D;
                       },
                       {values({2, 3, 7}, 0.37, 2)}, 1e-12);
}

}  // namespace
}  // namespace trireme::model
