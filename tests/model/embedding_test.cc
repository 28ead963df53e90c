#include "trireme/model/embedding.h"

#include <gtest/gtest.h>

#include "tests/model/gradients.h"

namespace trireme::model {
namespace {

TEST(Embedding, LooksUpRowsAndSumsTheirGradients) {
  Embedding embedding(5, 3, at::kDouble);
  embedding.weight_VD.data().copy_(values({5, 3}, 0.37));
  const at::Tensor tokens = at::tensor({4, 1, 4}, at::kLong).view({1, 3});
  const at::Tensor rows = embedding.forward(tokens);
  harness::assert_same_bits(rows[0][1], embedding.weight_VD[1], "row");
  const at::Tensor grad = torch::autograd::grad({rows.sum()}, {embedding.weight_VD})[0];
  const at::Tensor uses = at::tensor({0.0, 1.0, 0.0, 0.0, 2.0}, at::kDouble);
  harness::assert_same_bits(grad, uses.unsqueeze(1).expand({5, 3}), "gradient");
}

}  // namespace
}  // namespace trireme::model
