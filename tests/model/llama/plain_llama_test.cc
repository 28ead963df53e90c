#include "trireme/model/llama/plain_llama.h"

#include <set>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

ModelConfig plain_config(bool tied) {
  return {.layers = 2,
          .width = 16,
          .heads = 4,
          .kv_heads = 2,
          .ffn_width = 24,
          .sequence_length = 9,
          .vocab_size = 29,
          .tied_embedding = tied};
}

TEST(PlainLlama, IsTheFamilysModel) {
  for (const bool tied : {false, true}) {
    const ModelConfig config = plain_config(tied);
    const auto model = make_model(config, 7, at::kDouble);
    PlainLlama plain(config, at::kDouble);
    std::set<std::string> names;
    {
      const at::NoGradGuard no_gradient;
      for (const auto& each : model->module().named_parameters()) {
        at::Tensor* found = plain.named_parameters().find(each.key());
        ASSERT_NE(found, nullptr) << each.key();
        ASSERT_EQ(found->sizes(), each.value().sizes()) << each.key();
        at::Tensor to = *found;
        to.copy_(each.value());
        names.insert(each.key());
      }
    }
    EXPECT_EQ(plain.named_parameters().size(), names.size());
    const at::Tensor tokens = at::arange(18, at::kLong).mul(7).remainder(29).view({2, 9});
    const at::Tensor targets = at::arange(18, at::kLong).mul(5).remainder(29).view({2, 9});
    const at::Tensor expected = model->logits(tokens), found = plain.forward(tokens);
    EXPECT_LE((expected.to(at::kDouble) - found).abs().max().item<double>(), 1e-10);
    plain.loss(tokens, targets).backward();
    for (const auto& each : plain.named_parameters()) {
      EXPECT_TRUE(each.value().grad().defined()) << each.key();
    }
  }
}

TEST(PlainLlama, RefusesWhatItDoesNotHave) {
  const auto error_of = [](const ModelConfig& config) -> std::string {
    try {
      check_plain_llama(config);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(plain_config(false)), "");
  ModelConfig config = plain_config(false);
  config.family = "gpt2";
  EXPECT_THAT(error_of(config), testing::HasSubstr("model.family is gpt2"));
  config = plain_config(false);
  config.sparse.experts = 4;
  EXPECT_THAT(error_of(config), testing::HasSubstr("model.experts is 4"));
  config = plain_config(false);
  config.attention.qk_norm = true;
  EXPECT_THAT(error_of(config), testing::HasSubstr("model.qk_norm is true"));
}

}  // namespace
}  // namespace trireme::model
