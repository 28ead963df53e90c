#include "trireme/model/vit/vit.h"

#include <gtest/gtest.h>

#include "tests/harness/gradients.h"
#include "tests/model/vit/small_vit.h"

namespace trireme::model {
namespace {

using namespace harness;

TEST(VitEmbeddings, AreTheStridedConvolutionTheClassTokenAndThePositions) {
  const VitConfig config = small_vit();
  const int64_t D = config.width, T = config.num_tokens();
  const Tensors inputs = {some_images(config, 2), values({D, 3, 2, 2}, 0.31), values({D}, 0.7),
                          values({1, 1, D}, 0.9), values({1, T, D}, 0.13)};
  assert_same_function(
      [&](const Tensors& in) {
        VitEmbeddings embeddings(config, {}, at::kDouble);
        embeddings.weight_DCPP = in[1];
        embeddings.bias_D = in[2];
        embeddings.cls_token = in[3];
        embeddings.position_embeddings = in[4];
        return embeddings.forward(in[0], {.B = 2, .T = T, .positions_T = at::arange(T, at::kLong)});
      },
      [&](const Tensors& in) {
        const at::Tensor patches = at::conv2d(in[0], in[1], in[2], /*stride=*/2);
        const at::Tensor tokens = patches.flatten(2).transpose(1, 2);
        return at::cat({in[3].expand({2, 1, D}), tokens}, 1) + in[4];
      },
      inputs, 1e-13);
}

TEST(VitEmbeddings, APatchIsItsPixelsChannelByChannel) {
  const at::Tensor images = at::arange(2 * 2 * 4 * 4, at::kFloat).view({2, 2, 4, 4});
  const at::Tensor rows = patch_rows(images, 2, at::kDouble);
  EXPECT_EQ(rows.sizes(), at::IntArrayRef({2, 5, 8}));
  EXPECT_TRUE(rows.select(1, 0).eq(0).all().item<bool>());
  const at::Tensor expected = at::tensor({2.0, 3.0, 6.0, 7.0, 18.0, 19.0, 22.0, 23.0}, at::kDouble);
  assert_same_bits(rows[0][2], expected, "the patch on the right of the first");
  EXPECT_EQ(patch_rows(images.narrow(0, 0, 0), 4, at::kFloat).sizes(), at::IntArrayRef({0, 2, 32}));
}

}  // namespace
}  // namespace trireme::model
