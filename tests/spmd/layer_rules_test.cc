// Norms, convolutions, attention, images, losses and recurrent layers beside the same on one rank.
#include <torch/nn/functional.h>

#include <gtest/gtest.h>

#include "tests/spmd/placed_cases.h"

namespace trireme::spmd {
namespace {

using namespace spmd_test;
namespace F = torch::nn::functional;
using T = const Tensors&;

at::Tensor attend(T x, const std::optional<at::Tensor>& mask, bool causal, bool shared) {
  return at::scaled_dot_product_attention(x[0], x[1], x[2], mask, 0, causal, std::nullopt, shared);
}

at::Tensor normalized(T x, bool training) {
  const at::Tensor mean = values({4}, 0.4), variance = values({4}, 0.6, true);
  const at::Tensor y = at::batch_norm(x[0], x[1], x[2], mean, variance, training, 0.3, 1e-5, false);
  return training ? y * (mean * variance).sum() : y;  // the running statistics, too
}

const std::vector<OperatorCase>& layer_cases() {
  static const at::Tensor labels = at::tensor({3, 0, 4, 2, 1, 3, 0}, at::kLong);
  static const at::Tensor some = at::tensor({3, 0, -100, 2, 1, -100, 0}, at::kLong);
  static const at::Tensor pixels = at::arange(3 * 2 * 2, at::kLong).remainder(5).view({3, 2, 2});
  static const at::Tensor mask = values({5, 5}, 0.2).lt(0.5);
  static const std::vector<OperatorCase> all = {
      {"batch_norm", {{5, 4, 3}, {4}, {4}}, [](T x) { return normalized(x, true); }},
      {"batch_norm, images", {{3, 4, 2, 3}, {4}, {4}}, [](T x) { return normalized(x, true); }},
      {"batch_norm, running", {{5, 4, 3}, {4}, {4}}, [](T x) { return normalized(x, false); }},
      {"batch_norm, plain",
       {{5, 4}},
       [](T x) { return at::batch_norm(x[0], {}, {}, {}, {}, true, 0.1, 1e-5, false); }},
      {"instance_norm",
       {{3, 4, 5}},
       [](T x) { return at::instance_norm(x[0], {}, {}, {}, {}, true, 0.1, 1e-5, false); }},
      {"group_norm",
       {{3, 6, 2, 2}, {6}, {6}},
       [](T x) { return at::group_norm(x[0], 3, x[1], x[2]); }},
      {"group_norm, plain", {{2, 8, 3}}, [](T x) { return at::group_norm(x[0], 4); }},
      {"conv_transpose2d",
       {{3, 4, 3, 3}, {4, 6, 2, 2}, {6}},
       [](T x) { return at::conv_transpose2d(x[0], x[1], x[2], 2); }},
      {"conv_transpose1d, groups",
       {{3, 4, 5}, {4, 3, 2}, {6}},
       [](T x) { return at::conv_transpose1d(x[0], x[1], x[2], 2, 1, 1, 2); }},
      {"conv2d, by channel",
       {{3, 4, 4, 4}, {4, 1, 3, 3}, {4}},
       [](T x) { return at::conv2d(x[0], x[1], x[2], 1, 1, 1, 4); }},
      {"conv1d, uneven groups",
       {{2, 6, 5}, {9, 2, 2}, {9}},
       [](T x) {
         return at::conv1d(x[0], x[1], x[2], at::IntArrayRef{1}, at::IntArrayRef{0},
                           at::IntArrayRef{1}, 3);
       }},
      {"conv3d",
       {{2, 3, 3, 3, 3}, {4, 3, 2, 2, 2}, {4}},
       [](T x) { return at::conv3d(x[0], x[1], x[2]); }},
      {"attention, a mask",
       {{3, 4, 5, 8}, {3, 4, 5, 8}, {3, 4, 5, 8}},
       [](T x) { return attend(x, mask, false, false); }},
      {"attention, shared keys",
       {{3, 4, 5, 8}, {3, 2, 5, 8}, {3, 2, 5, 8}},
       [](T x) { return attend(x, {}, true, true); }},
      {"attention, one key",
       {{2, 6, 5, 8}, {2, 1, 5, 8}, {2, 1, 5, 8}},
       [](T x) { return attend(x, {}, false, true); }},
      {"softmax, classes", {{5, 7}}, [](T x) { return x[0].softmax(1) * x[0]; }},
      {"log_softmax, three dims", {{2, 5, 3}}, [](T x) { return x[0].log_softmax(1); }},
      {"cross_entropy, ignored", {{7, 5}}, [](T x) { return at::cross_entropy_loss(x[0], some); }},
      {"cross_entropy, weights",
       {{7, 5}},
       [](T x) { return at::cross_entropy_loss(x[0], some, values({5}, 0.3, true)); }},
      {"cross_entropy, smoothed",
       {{7, 5}},
       [](T x) {
         return at::cross_entropy_loss(x[0], labels, {}, at::Reduction::Mean, -100, 0.1);
       }},
      {"cross_entropy, pixels",
       {{3, 5, 2, 2}},
       [](T x) { return at::cross_entropy_loss(x[0], pixels); }},
      {"cross_entropy, pixels apart",
       {{3, 5, 2, 2}},
       [](T x) { return at::cross_entropy_loss(x[0], pixels, {}, at::Reduction::None); }},
      {"cross_entropy, one row",
       {{5}},
       [](T x) { return at::cross_entropy_loss(x[0], labels[0]); }},
      {"smooth_l1", {{5, 3}, {5, 3}}, [](T x) { return at::smooth_l1_loss(x[0], x[1]); }},
      {"huber, sum",
       {{5, 3}, {5, 3}},
       [](T x) { return at::huber_loss(x[0], x[1], at::Reduction::Sum, 0.5); }},
      {"bce, probabilities",
       {{5, 3}, {5, 3}},
       [](T x) { return at::binary_cross_entropy(x[0].sigmoid(), x[1].sigmoid()); }},
      {"kl_div", {{5, 3}, {5, 3}}, [](T x) { return at::kl_div(x[0], x[1].exp()); }},
      {"max_pool3d", {{2, 3, 4, 4, 4}}, [](T x) { return at::max_pool3d(x[0], 2); }},
      {"max_pool1d", {{3, 4, 6}}, [](T x) { return at::max_pool1d(x[0], 2); }},
      {"avg_pool1d", {{3, 4, 6}}, [](T x) { return at::avg_pool1d(x[0], 2); }},
      {"avg_pool3d", {{2, 3, 4, 4, 4}}, [](T x) { return at::avg_pool3d(x[0], 2); }},
      {"max_pool2d, no batch", {{4, 6, 6}}, [](T x) { return at::max_pool2d(x[0], 2); }},
      {"adaptive_max_pool2d",
       {{3, 4, 5, 5}},
       [](T x) {
         return std::get<0>(at::adaptive_max_pool2d(x[0], {2, 2}));
       }},
      {"adaptive_avg_pool3d",
       {{2, 3, 4, 4, 4}},
       [](T x) {
         return at::adaptive_avg_pool3d(x[0], {2, 2, 2});
       }},
      {"upsample, nearest",
       {{3, 4, 3, 3}},
       [](T x) {
         return at::upsample_nearest2d(x[0], {5, 6});
       }},
      {"upsample, bilinear",
       {{3, 4, 3, 3}},
       [](T x) {
         return at::upsample_bilinear2d(x[0], {5, 6}, true);
       }},
      {"upsample, bicubic",
       {{3, 4, 3, 3}},
       [](T x) {
         return at::upsample_bicubic2d(x[0], {5, 6}, false);
       }},
      {"upsample, linear", {{3, 4, 3}}, [](T x) { return at::upsample_linear1d(x[0], 5, false); }},
      {"upsample, trilinear",
       {{2, 3, 2, 2, 2}},
       [](T x) {
         return at::upsample_trilinear3d(x[0], {3, 3, 3}, false);
       }},
      {"interpolate",
       {{3, 4, 3, 3}},
       [](T x) {
         return F::interpolate(x[0], F::InterpolateFuncOptions()
                                         .scale_factor(std::vector<double>{2, 2})
                                         .mode(torch::kNearest));
       }},
      {"pixel_shuffle", {{3, 8, 2, 3}}, [](T x) { return at::pixel_shuffle(x[0], 2); }},
      {"pixel_unshuffle", {{3, 2, 4, 6}}, [](T x) { return at::pixel_unshuffle(x[0], 2); }},
      {"pad, reflected",
       {{3, 4, 4, 4}},
       [](T x) {
         return at::reflection_pad2d(x[0], {1, 1, 2, 1});
       }},
      {"pad, replicated",
       {{3, 4, 4}},
       [](T x) {
         return at::replication_pad1d(x[0], {1, 2});
       }},
      {"unfold",
       {{3, 4, 4, 4}},
       [](T x) {
         return at::im2col(x[0], {2, 2}, {1, 1}, {0, 0}, {2, 2});
       }},
      {"grid_sampler",
       {{3, 4, 4, 4}, {3, 2, 2, 2}},
       [](T x) { return at::grid_sampler_2d(x[0], x[1] * 0.5, 0, 0, false); }},
      {"glu", {{5, 6}}, [](T x) { return at::glu(x[0], 1); }},
      {"prelu", {{5, 4}, {4}}, [](T x) { return at::prelu(x[0], x[1]); }},
      {"linear, split rows",
       {{2, 6, 3}, {4, 3}, {4}},
       [](T x) { return at::linear(x[0], x[1], x[2]).relu().pow(2); }},
      {"gru",
       {{4, 3, 2}, {1, 3, 5}, {15, 2}, {15, 5}, {15}, {15}},
       [](T x) {
         return std::get<0>(
             at::gru(x[0], x[1], {x[2], x[3], x[4], x[5]}, true, 1, 0.0, true, false, false));
       }},
      {"lstm",
       {{4, 3, 2}, {1, 3, 5}, {1, 3, 5}, {20, 2}, {20, 5}, {20}, {20}},
       [](T x) {
         return std::get<0>(at::lstm(x[0], {x[1], x[2]}, {x[3], x[4], x[5], x[6]}, true, 1, 0.0,
                                     true, false, false));
       }},
      {"rnn",
       {{4, 3, 2}, {1, 3, 5}, {5, 2}, {5, 5}},
       [](T x) {
         return std::get<0>(
             at::rnn_tanh(x[0], x[1], {x[2], x[3]}, false, 1, 0.0, true, false, false));
       }},
  };
  return all;
}

class LayerRules : public ::testing::TestWithParam<size_t> {};

TEST_P(LayerRules, GiveWhatOneRankComputes) { expect_on_all_grids(layer_cases()[GetParam()]); }

INSTANTIATE_TEST_SUITE_P(Operators, LayerRules, ::testing::Range<size_t>(0, layer_cases().size()),
                         [](const auto& info) { return test_name(layer_cases()[info.param]); });

}  // namespace
}  // namespace trireme::spmd
