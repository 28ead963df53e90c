#include "trireme/model/family/model_config.h"

#include <cmath>
#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

void expect_refused(const std::function<void(ModelConfig&)>& change, const std::string& key,
                    const std::string& value) {
  ModelConfig config;
  config.vocab_size = 64;
  change(config);
  try {
    validate(config);
    FAIL() << key << " was accepted";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("model." + key), text.npos) << text;
    EXPECT_NE(text.find(value), text.npos) << text;
    EXPECT_NE(text.find("expected"), text.npos) << text;
    EXPECT_EQ(text.find('\n'), text.npos) << text;
  }
}

TEST(ModelConfig, DefaultsAreValid) { EXPECT_NO_THROW(validate(ModelConfig{})); }

TEST(ModelConfig, RefusalsNameKeyValueAndExpectation) {
  expect_refused([](auto& c) { c.family = "mamba"; }, "family", "mamba");
  expect_refused([](auto& c) { c.layers = 0; }, "layers", "0");
  expect_refused([](auto& c) { c.width = -8; }, "width", "-8");
  expect_refused([](auto& c) { c.heads = 0; }, "heads", "0");
  expect_refused([](auto& c) { c.kv_heads = 0; }, "kv_heads", "0");
  expect_refused([](auto& c) { c.ffn_width = 0; }, "ffn_width", "0");
  expect_refused([](auto& c) { c.sequence_length = 0; }, "sequence_length", "0");
  expect_refused([](auto& c) { c.vocab_size = -1; }, "vocab_size", "-1");
  expect_refused([](auto& c) { c.norm_epsilon = 0; }, "norm_epsilon", "0");
  expect_refused([](auto& c) { c.rope_base = 1; }, "rope_base", "1");
  expect_refused([](auto& c) { c.dropout = 1; }, "dropout", "1");
  expect_refused([](auto& c) { c.dropout = -0.1; }, "dropout", "-0.1");
  expect_refused([](auto& c) { c.dropout = std::nan(""); }, "dropout", "nan");
}

TEST(ModelConfig, HeadsDivideWidthAndKvHeadsDivideHeads) {
  expect_refused([](auto& c) { c.heads = c.kv_heads = 7; }, "heads", "7");
  expect_refused([](auto& c) { c.kv_heads = 3; }, "kv_heads", "3");
}

TEST(ModelConfig, RotaryHeadsHaveEvenWidth) {
  expect_refused([](auto& c) { c.width = 20, c.heads = c.kv_heads = 4; }, "heads", "5");
}

TEST(ModelConfig, Gpt2HasNoGroupedQueries) {
  expect_refused([](auto& c) { c.family = "gpt2", c.kv_heads = 2; }, "kv_heads", "2");
}

TEST(ModelConfig, NumParametersIsWhatTheModelHolds) {
  for (const std::string family : {"llama", "gpt2"}) {
    for (const bool tied : {false, true}) {
      const ModelConfig config{.family = family,
                               .layers = 3,
                               .width = 24,
                               .heads = 4,
                               .kv_heads = family == "llama" ? 2 : 4,
                               .ffn_width = 40,
                               .sequence_length = 7,
                               .vocab_size = 31,
                               .tied_embedding = tied};
      int64_t held = 0;
      for (const auto& p : make_model(config, 1, at::kFloat)->module().parameters()) {
        held += p.numel();
      }
      EXPECT_EQ(num_parameters(config), held) << family << " tied " << tied;
    }
  }
}

TEST(ModelConfig, FlopsPerTokenAreSixPerMatmulParameterPlusAttention) {
  const ModelConfig config{.layers = 2,
                           .width = 8,
                           .heads = 2,
                           .kv_heads = 1,
                           .ffn_width = 16,
                           .sequence_length = 5,
                           .vocab_size = 11};
  const double matmuls = 2 * (64 + 32 + 32 + 64 + 3 * 128) + 11 * 8;
  EXPECT_EQ(flops_per_token(config), 6 * matmuls + 12 * 2 * 5 * 8);
}

TEST(MakeModel, RefusesAVocabularyThatIsStillUnknown) {
  EXPECT_THROW(make_model(ModelConfig{}, 1, at::kFloat), ConfigError);
}

}  // namespace
}  // namespace trireme::model
