#include "trireme/model/gpt2/gpt2.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/harness/gradients.h"
#include "trireme/base/error.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

using namespace harness;

const ModelConfig kConfig{.family = "gpt2",
                          .layers = 1,
                          .width = 16,
                          .heads = 4,
                          .kv_heads = 4,
                          .ffn_width = 64,
                          .sequence_length = 9,
                          .vocab_size = 29};

TEST(Gpt2, ParametersAreNamedAsHuggingFaceNamesThem) {
  std::set<std::string> expected = {"transformer.wte.weight", "transformer.wpe.weight"};
  for (const std::string name :
       {"h.0.ln_1", "h.0.attn.q_proj", "h.0.attn.k_proj", "h.0.attn.v_proj", "h.0.attn.c_proj",
        "h.0.ln_2", "h.0.mlp.c_fc", "h.0.mlp.c_proj", "ln_f"}) {
    expected.insert("transformer." + name + ".weight");
    expected.insert("transformer." + name + ".bias");
  }
  std::set<std::string> actual;
  for (const auto& item : make_model(kConfig, 1, at::kFloat)->module().named_parameters()) {
    actual.insert(item.key());
  }
  EXPECT_EQ(actual, expected);
}

TEST(Gpt2, AFutureTokenDoesNotChangeThePast) {
  const auto model = make_model(kConfig, 1, at::kDouble);
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = at::arange(8, at::kLong).view({1, 8});
  const at::Tensor changed = tokens.clone();
  changed[0][5] = 28;
  const at::Tensor a = model->logits(tokens);
  const at::Tensor b = model->logits(changed);
  harness::assert_close(b.narrow(1, 0, 5), a.narrow(1, 0, 5), 1e-14, 0, "past");
  EXPECT_GT((a[0][7] - b[0][7]).abs().max().item<double>(), 1e-6);
}

TEST(Gpt2, TheEmbeddingLearnsFromBothItsUses) {
  const auto model = make_model(kConfig, 1, at::kDouble);
  const at::Tensor tokens = at::full({1, 3}, 4, at::kLong);
  model->loss(tokens, tokens).sum.backward();
  const at::Tensor grad = model->module().named_parameters()["transformer.wte.weight"].grad();
  // Token 4 is read; every other row learns as part of the head.
  EXPECT_EQ(grad.ne(0).any(1).sum().item<int64_t>(), 29);
}

TEST(Gpt2, ASeparateHeadHasAWeightOfItsOwn) {
  ModelConfig config = kConfig;
  config.separate_head = true;
  validate(config);
  EXPECT_FALSE(config.has_tied_head());
  EXPECT_EQ(num_parameters(config), num_parameters(kConfig) + 29 * 16);
  const auto model = make_model(config, 1, at::kDouble);
  const at::Tensor tokens = at::full({1, 3}, 4, at::kLong);
  model->loss(tokens, tokens).sum.backward();
  const auto parameters = model->module().named_parameters();
  // Only the token that is read; all rows of the head.
  EXPECT_EQ(parameters["transformer.wte.weight"].grad().ne(0).any(1).sum().item<int64_t>(), 1);
  EXPECT_EQ(parameters["lm_head.weight"].grad().ne(0).any(1).sum().item<int64_t>(), 29);
  config.family = "llama";
  EXPECT_THROW(validate(config), ConfigError);
}

}  // namespace
}  // namespace trireme::model
