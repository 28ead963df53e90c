#include "trireme/model/family/init.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/tensors.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

at::Tensor filled(const mesh::Box& box, const std::vector<int64_t>& shape,
                  at::ScalarType dtype = at::kDouble) {
  const at::Tensor tensor = at::zeros(box.size, dtype);
  fill_normal(tensor, box, shape, random_key(3, "w"), 0.5);
  return tensor;
}

mesh::Box whole(const std::vector<int64_t>& shape) {
  return {std::vector<int64_t>(shape.size(), 0), shape};
}

TEST(FillNormal, AShardDrawsItsPartOfTheWhole) {
  const std::vector<int64_t> shape = {5, 7, 9};
  const at::Tensor all = filled(whole(shape), shape);
  for (const mesh::Box& box : {mesh::Box{{0, 0, 0}, {5, 7, 9}}, mesh::Box{{3, 0, 0}, {2, 7, 9}},
                               mesh::Box{{0, 3, 0}, {5, 1, 9}}, mesh::Box{{1, 2, 3}, {3, 4, 5}},
                               mesh::Box{{4, 6, 8}, {1, 1, 1}}, mesh::Box{{2, 0, 0}, {0, 7, 9}}}) {
    at::Tensor slice = all;
    for (size_t d = 0; d < shape.size(); ++d) {
      slice = slice.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
    }
    harness::assert_same_bits(filled(box, shape), slice, "shard");
  }
}

TEST(FillNormal, EveryLayoutOfAParameterDrawsTheSame) {
  const std::vector<int64_t> shape = {10, 6};
  const at::Tensor all = filled(whole(shape), shape);
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const int dim : {0, 1}) {
      const mesh::Layout layout(shape, {{"tensor", ranks}}, {mesh::Placement::sharded(dim)});
      std::vector<at::Tensor> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        parts.push_back(filled(layout.local_box(rank), shape));
      }
      harness::assert_same_bits(at::cat(parts, dim), all, "joined shards");
    }
  }
}

TEST(FillNormal, LowerPrecisionsAreTheRoundingOfFp64) {
  const std::vector<int64_t> shape = {33};
  const at::Tensor fp64 = filled(whole(shape), shape);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    harness::assert_close(filled(whole(shape), shape, dtype), fp64.to(dtype), 0, 0, "rounded");
  }
}

TEST(FillNormal, HasTheMomentsOfANormal) {
  const std::vector<int64_t> shape = {200000};
  const at::Tensor x = filled(whole(shape), shape) / 0.5;
  // Five standard errors of each estimate.
  const double error = 5 / std::sqrt(200000.0);
  EXPECT_NEAR(x.mean().item<double>(), 0, error);
  EXPECT_NEAR(x.square().mean().item<double>(), 1, error * std::sqrt(2.0));
  EXPECT_NEAR(x.pow(4).mean().item<double>(), 3, error * std::sqrt(96.0));
  // Neighbours share a block of random bits and must not be correlated.
  EXPECT_NEAR((x.slice(0, 0, -1) * x.slice(0, 1)).mean().item<double>(), 0, error);
}

TEST(FillNormal, GoldenValuesHold) {
  const std::vector<int64_t> shape = {4};
  const at::Tensor x = filled(whole(shape), shape);
  const double golden[] = {0.33564600538068373, 0.78261742414919877, 0.59201418025130859,
                           0.26694476702666364};
  // The last bits belong to libm's log and cos.
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(x[i].item<double>(), golden[i], 1e-14);
}

TEST(InitialiserOf, FollowsTheParametersRole) {
  ModelConfig config;
  config.layers = 8;
  const Initialiser plain{.std = 0.02};
  const Initialiser branch{.std = 0.02 / 4};
  const Initialiser one{.value = 1};
  EXPECT_EQ(initialiser_of(config, "model.embed_tokens.weight"), plain);
  EXPECT_EQ(initialiser_of(config, "lm_head.weight"), plain);
  EXPECT_EQ(initialiser_of(config, "model.layers.0.self_attn.q_proj.weight"), plain);
  EXPECT_EQ(initialiser_of(config, "model.layers.0.self_attn.o_proj.weight"), branch);
  EXPECT_EQ(initialiser_of(config, "model.layers.7.mlp.down_proj.weight"), branch);
  EXPECT_EQ(initialiser_of(config, "model.layers.7.input_layernorm.weight"), one);
  EXPECT_EQ(initialiser_of(config, "model.norm.weight"), one);
  EXPECT_EQ(initialiser_of(config, "transformer.h.0.attn.c_proj.weight"), branch);
  EXPECT_EQ(initialiser_of(config, "transformer.h.0.attn.q_proj.weight"), plain);
  EXPECT_EQ(initialiser_of(config, "transformer.h.0.ln_1.weight"), one);
  EXPECT_EQ(initialiser_of(config, "transformer.h.0.ln_1.bias"), Initialiser{});
}

TEST(Initialise, ParametersDependOnSeedAndNameAlone) {
  const ModelConfig small{.layers = 1,
                          .width = 8,
                          .heads = 2,
                          .kv_heads = 2,
                          .ffn_width = 16,
                          .sequence_length = 4,
                          .vocab_size = 10};
  ModelConfig deeper = small;
  deeper.layers = 2;
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  const auto weight = [&](const ModelConfig& config, uint64_t seed) {
    return make_model(config, seed, at::kFloat)->module().named_parameters()[name];
  };
  harness::assert_same_bits(weight(small, 1), weight(deeper, 1), "same seed and name");
  EXPECT_FALSE(weight(small, 1).equal(weight(small, 2)));
}

}  // namespace
}  // namespace trireme::model
