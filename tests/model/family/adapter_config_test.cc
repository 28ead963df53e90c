#include "trireme/model/family/adapter_config.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/comm/errors.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/model/family/init.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

ModelConfig adapted(const std::string& family) {
  ModelConfig config{.family = family,
                     .layers = 2,
                     .width = 24,
                     .heads = 6,
                     .kv_heads = family == "gpt2" ? 6 : 2,
                     .ffn_width = 25,
                     .sequence_length = 7,
                     .vocab_size = 37};
  if (family == "mixtral") config.sparse.experts = 3;
  config.lora.rank = 3;
  return config;
}

ModelConfig latent() {
  ModelConfig config = adapted("llama");
  config.kv_heads = 6;
  config.attention.kv_lora_rank = 5;
  config.attention.q_lora_rank = 7;
  config.attention.qk_nope_width = 4;
  config.attention.qk_rope_width = 2;
  config.attention.v_head_width = 4;
  return config;
}

constexpr const char* kStacks = "*.q_proj, *.experts.*";

// All stacks, the joined ones or the others only, and with biases.
ModelConfig stacked(const std::string& stacks) {
  ModelConfig config = adapted("mixtral");
  config.sparse.experts_per_token = 2;
  config.sparse.expert_bias = stacks == kStacks;
  config.lora.targets = stacks;
  return config;
}

std::vector<ModelConfig> families() {
  return {adapted("llama"),
          adapted("gpt2"),
          adapted("mixtral"),
          latent(),
          stacked("*, *.experts.gate_up_proj"),
          stacked("*.experts.down_proj"),
          stacked(kStacks)};
}

TEST(Adapters, ComeAfterTheirLayerInTheModelAndInItsPlan) {
  for (const ModelConfig& config : families()) {
    const ModelPlan plan = make_plan(config);
    const auto model = make_model(config, 1, at::kFloat);
    const auto parameters = model->module().named_parameters();
    ASSERT_EQ(plan.parameters().size(), parameters.size());
    int64_t trained = 0, all = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const ParameterPlan& own = plan.parameters()[i];
      EXPECT_EQ(own.name, parameters[i].key());
      EXPECT_EQ(at::IntArrayRef(own.layout.shape()), parameters[i].value().sizes()) << own.name;
      const bool is_adapter = own.name.ends_with(kAdapterA) || own.name.ends_with(kAdapterB);
      EXPECT_EQ(own.is_trained, is_adapter) << own.name;
      EXPECT_EQ(parameters[i].value().requires_grad(), is_adapter) << own.name;
      all += parameters[i].value().numel();
      trained += is_adapter ? parameters[i].value().numel() : 0;
    }
    EXPECT_EQ(num_parameters(config), all);
    EXPECT_EQ(num_trained_parameters(config), trained);
    // ZeRO-3 gathers all that a block has.
    int64_t in_units = 0;
    for (const parallel::Unit& unit : model->units()) {
      for (const at::Tensor& parameter : unit.parameters) in_units += parameter.numel();
    }
    EXPECT_EQ(in_units, all);
  }
}

// Every linear layer of a block but the router; embeddings, norms and the head have none.
TEST(Adapters, AreOfLinearLayersInBlocks) {
  const auto layers_of = [](const ModelConfig& config) {
    std::set<std::string> layers;
    const ModelPlan plan = make_plan(config);
    for (const ParameterPlan& parameter : plan.parameters()) {
      const std::string& name = parameter.name;
      const size_t end = name.find(kAdapterA);
      if (end != name.npos)
        layers.insert(
            name.substr(name.rfind('.', end - 1) + 1, end - name.rfind('.', end - 1) - 1));
    }
    return layers;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(layers_of(adapted("llama")),
            (Names{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}));
  EXPECT_EQ(layers_of(adapted("gpt2")), (Names{"q_proj", "k_proj", "v_proj", "c_fc", "c_proj"}));
  EXPECT_EQ(layers_of(adapted("mixtral")), (Names{"q_proj", "k_proj", "v_proj", "o_proj"}));
  EXPECT_EQ(layers_of(stacked("*, *.experts.gate_up_proj")),
            (Names{"q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj"}));
  const ModelConfig stacks_only = stacked("*.0.*.experts.*");
  EXPECT_EQ(layers_of(stacks_only), (Names{"gate_up_proj", "down_proj"}));
  EXPECT_EQ(num_trained_parameters(stacks_only), 3 * 3 * (24 + 2 * 25 + 25 + 24));
  EXPECT_EQ(layers_of(latent()), (Names{"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj",
                                        "o_proj", "gate_proj", "up_proj", "down_proj"}));
  ModelConfig some = adapted("llama");
  some.lora.targets = "*.q_proj, model.layers.1.*.v_proj";
  EXPECT_EQ(layers_of(some), (Names{"q_proj", "v_proj"}));
  EXPECT_EQ(num_trained_parameters(some), 2 * (3 * 24 + 24 * 3) + (3 * 24 + 8 * 3));
}

TEST(Adapters, BeginAsTheModelWithoutThem) {
  const at::Tensor tokens_BT = at::arange(14, at::kLong).view({2, 7});
  for (const ModelConfig& config : families()) {
    const auto with = make_model(config, 5, at::kFloat);
    const auto without = make_model(config.without_adapters(), 5, at::kFloat);
    const at::NoGradGuard no_grad;
    harness::assert_same_bits(with->logits(tokens_BT), without->logits(tokens_BT), config.family);
  }
}

// B is zero at first. Then the model is the one whose weights are W + alpha / r * B A.
TEST(Adapters, AreTheModelWithTheirProductsAdded) {
  const at::Tensor tokens_BT = at::arange(14, at::kLong).view({2, 7});
  for (const ModelConfig& config : families()) {
    const auto with = make_model(config, 5, at::kDouble);
    const auto merged = make_model(config.without_adapters(), 5, at::kDouble);
    const at::NoGradGuard no_grad;
    auto parameters = with->module().named_parameters();
    for (auto& own : merged->module().named_parameters()) {
      const std::string stack = adapted_stack(own.key());
      const std::string layer =
          stack.empty() ? own.key().substr(0, own.key().rfind('.')) : own.key();
      at::Tensor* const a = parameters.find((stack.empty() ? layer : stack) + kAdapterA);
      if (a == nullptr || (stack.empty() && !own.key().ends_with(".weight"))) continue;
      at::Tensor b = parameters[layer + kAdapterB];
      EXPECT_EQ(b.abs().max().item<double>(), 0);
      const double deviation = 1 / std::sqrt(3.0 * static_cast<double>(a->size(-1)));
      EXPECT_NEAR(a->std().item<double>(), deviation, deviation / 2);
      b.copy_(at::arange(b.numel(), at::kDouble).mul(0.7).sin().mul(0.1).view(b.sizes()));
      own.value().add_(b.matmul(*a), config.lora.scale());
    }
    const at::Tensor actual = with->logits(tokens_BT), expected = merged->logits(tokens_BT);
    EXPECT_GT(
        (actual - make_model(config, 5, at::kDouble)->logits(tokens_BT)).abs().max().item<double>(),
        1e-6);
    harness::assert_close(actual, expected, 1e-12, 1e-12, config.family);
  }
}

TEST(Adapters, DropTheirInputsInTrainingOnly) {
  ModelConfig config = adapted("llama");
  config.lora.dropout = 0.5;
  const auto model = make_model(config, 5, at::kDouble);
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : model->module().named_parameters()) {
      if (parameter.key().ends_with(kAdapterB)) parameter.value().fill_(0.1);
    }
  }
  const at::Tensor tokens_BT = at::arange(14, at::kLong).view({2, 7});
  const auto loss = [&](std::optional<TrainingPlace> place) {
    return model->loss(tokens_BT, tokens_BT, place).sum.item<double>();
  };
  const double plain = loss({}), first = loss(TrainingPlace{.step = 1}),
               again = loss(TrainingPlace{.step = 1}), second = loss(TrainingPlace{.step = 2});
  EXPECT_EQ(first, again);
  EXPECT_NE(first, plain);
  EXPECT_NE(first, second);
}

TEST(Adapters, WhatMatchesNothingIsRefusedWithWhatThereIs) {
  ModelConfig config = adapted("llama");
  config.lora.targets = "*.q_proj, *.c_attn";
  EXPECT_ERROR(
      ConfigError, make_plan(config),
      "lora.targets has \"*.c_attn\", which matches no linear layer of a block; expected a "
      "pattern of names such as \"model.layers.0.self_attn.q_proj\" or "
      "\"model.layers.1.mlp.down_proj\"");
  config.lora.targets = " ,";
  EXPECT_ERROR(ConfigError, make_plan(config), "lora.targets is empty");
  config.lora.targets = "*";
  config.lora.also_train = "*layernorm*, head";
  EXPECT_ERROR(ConfigError, make_plan(config),
               "lora.also_train has \"head\", which matches no parameter");
}

TEST(Adapters, OfStackedExpertsAreRefusedWhereThereAreNone) {
  EXPECT_ERROR(ConfigError, make_plan(stacked("*, *.experts.gate_proj")),
               "lora.targets has \"*.experts.gate_proj\", which matches no stacked weights of "
               "experts; expected a pattern of names such as "
               "\"model.layers.0.mlp.experts.gate_up_proj\" or "
               "\"model.layers.1.mlp.experts.down_proj\"");
  for (const bool drops : {true, false}) {
    ModelConfig config = stacked("*.experts.down_proj");
    config.lora.dropout = drops ? 0.5 : 0;
    config.lora.dora = !drops;
    EXPECT_ERROR(ConfigError, make_plan(config),
                 "adapters of stacked experts have neither dropout nor magnitudes");
  }
  ModelConfig dense = adapted("llama");
  dense.lora.targets = "*.experts.*";
  EXPECT_ERROR(ConfigError, make_plan(dense),
               "lora.targets has \"*.experts.*\", and the model has no stacked weights of experts; "
               "leave it out");
}

// A token meets those of its experts only.
TEST(Adapters, OfStackedExpertsAreCountedByTheExpertsOfAToken) {
  ModelConfig config = stacked("*, *.experts.*");
  const double two = flops_per_token(config);
  config.lora.targets = "*";
  const double adapters = 2 * 3 * (24 + 2 * 25 + 25 + 24);
  EXPECT_DOUBLE_EQ(two - flops_per_token(config), 6 * 2 * adapters);
}

TEST(Adapters, LeaveTheirOwnParametersOutOfWhatIsTrainedBeside) {
  ModelConfig config = adapted("llama");
  config.lora.also_train = "*norm*";
  const ModelPlan plan = make_plan(config);
  for (const ParameterPlan& parameter : plan.parameters()) {
    const bool expected = parameter.name.find("norm") != std::string::npos ||
                          parameter.name.find("lora_") != std::string::npos;
    EXPECT_EQ(parameter.is_trained, expected) << parameter.name;
  }
  // Forward and the gradient of the input, for each weight, and all three for an adapter's.
  const double frozen = flops_per_token(config), full = flops_per_token(config.without_adapters());
  EXPECT_LT(frozen, full);
  EXPECT_GT(frozen, full * 2 / 3);
}

}  // namespace
}  // namespace trireme::model
