#include "trireme/model/layers/embedding.h"

#include <gtest/gtest.h>

#include "tests/harness/gradients.h"

namespace trireme::model {
namespace {

using namespace harness;

const ModelConfig kConfig{.layers = 1,
                          .width = 3,
                          .heads = 1,
                          .kv_heads = 1,
                          .ffn_width = 1,
                          .sequence_length = 4,
                          .vocab_size = 5};

TEST(TokenEmbedding, LooksUpRowsAndSumsTheirGradients) {
  TokenEmbedding embedding(kConfig, {}, at::kDouble);
  embedding.weight_VD.data().copy_(values({5, 3}, 0.3));
  const at::Tensor tokens = at::tensor({4, 0, 4, 2}, at::kLong).view({2, 2});
  const at::Tensor rows = embedding.forward(tokens);
  EXPECT_TRUE(rows[0][0].equal(embedding.weight_VD[4]));
  EXPECT_TRUE(rows[1][1].equal(embedding.weight_VD[2]));
  rows.sum().backward();
  const at::Tensor expected = at::tensor({1.0, 0.0, 1.0, 0.0, 2.0}).unsqueeze(1).expand({5, 3});
  EXPECT_TRUE(embedding.weight_VD.grad().equal(expected.to(at::kDouble)));
}

TEST(PositionEmbedding, AddsTheRowsOfThePositions) {
  PositionEmbedding embedding(kConfig, {}, at::kDouble);
  embedding.weight_TD.data().copy_(values({4, 3}, 0.3));
  const at::Tensor x = values({2, 2, 3}, 0.7);
  const TokenBatch batch{.B = 2, .T = 2, .positions_T = at::tensor({3, 1}, at::kLong)};
  const at::Tensor y = embedding.forward(x, batch);
  EXPECT_TRUE(y[1][0].equal(x[1][0] + embedding.weight_TD[3]));
  EXPECT_TRUE(y[0][1].equal(x[0][1] + embedding.weight_TD[1]));
}

}  // namespace
}  // namespace trireme::model
