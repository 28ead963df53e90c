#include "trireme/model/family/expert_config.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/model/family/model_config.h"

namespace trireme::model {
namespace {

ModelConfig with(const ExpertConfig& sparse) {
  return {.family = "mixtral", .layers = 4, .vocab_size = 11, .sparse = sparse};
}

std::string error_of(const ModelConfig& config) {
  try {
    validate(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ExpertConfig, SaysWhichBlocksAreSparse) {
  const auto sparse_of = [](const ExpertConfig& config) {
    std::string text;
    for (int64_t layer = 0; layer < 6; ++layer) text += config.is_sparse(layer) ? 's' : 'd';
    return text;
  };
  EXPECT_EQ(sparse_of({}), "dddddd");
  EXPECT_EQ(sparse_of({.experts = 8}), "ssssss");
  EXPECT_EQ(sparse_of({.experts = 8, .dense_layers = 2}), "ddssss");
  EXPECT_EQ(sparse_of({.experts = 8, .expert_interval = 2}), "dsdsds");
  EXPECT_EQ(sparse_of({.experts = 8, .dense_layers = 1, .expert_interval = 3}), "ddsdds");
}

TEST(ExpertConfig, RefusesWhatNoRouterCanDo) {
  EXPECT_EQ(error_of(with({.experts = 8})), "");
  const std::pair<ExpertConfig, const char*> cases[] = {
      {{.experts = 0}, "model.experts 0"},
      {{.experts = 4, .experts_per_token = 5}, "model.experts_per_token is 5"},
      {{.experts = 4, .experts_per_token = 1}, "model.router_normalise true"},
      {{.experts = 8, .shared_gate = true}, "model.shared_experts 0"},
      {{.experts = 8, .expert_groups = 3}, "model.expert_groups = 3"},
      {{.experts = 8, .expert_groups = 2, .groups_per_token = 3}, "model.groups_per_token is 3"},
      {{.experts = 8, .experts_per_token = 3, .expert_groups = 4}, "have 2 experts"},
      {{.experts = 8, .dense_layers = 4}, "sparse block would be number 5"},
      {{.experts = 8, .expert_interval = 5}, "sparse block would be number 5"},
  };
  for (const auto& [sparse, text] : cases) {
    EXPECT_NE(error_of(with(sparse)).find(text), std::string::npos) << error_of(with(sparse));
  }
}

TEST(ExpertConfig, RefusesKeysOfExpertsInADenseModel) {
  for (const ExpertConfig& sparse : {ExpertConfig{.shared_experts = 1},
                                     {.shared_gate = true},
                                     {.dense_layers = 1},
                                     {.expert_width = 8},
                                     {.router_bias = true}}) {
    ModelConfig config = with(sparse);
    config.family = "llama";
    EXPECT_NE(error_of(config).find("model.experts 0"), std::string::npos) << error_of(config);
  }
}

TEST(ExpertConfig, ExpertsOfAFamilyThatHasNone) {
  ModelConfig config = with({.experts = 8});
  config.family = "gpt2";
  EXPECT_NE(error_of(config).find("gpt2 has no sparse blocks"), std::string::npos);
}

TEST(ExpertConfig, CountsOverflowNothing) {
  ModelConfig config = with({.experts = kMaxExperts});
  config.layers = kMaxLayers;
  config.width = config.ffn_width = kMaxWidth;
  EXPECT_NE(error_of(config).find("below 2^58"), std::string::npos) << error_of(config);
}

}  // namespace
}  // namespace trireme::model
