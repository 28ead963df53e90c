#include "trireme/model/llama/llama_form.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"
#include "trireme/model/family/config.h"

namespace trireme::model {
namespace {

using testing::HasSubstr;

HuggingFaceForm form_of(const ModelConfig& config) {
  ModelConfig whole = config;
  whole.layers = 2;
  whole.vocab_size = 11;
  validate(whole);
  return llama_form(make_plan(whole));
}

TEST(LlamaForm, IsTheClassThatComputesTheSame) {
  const ExpertConfig sparse{.experts = 4};
  EXPECT_EQ(form_of({}).kind->architecture, "LlamaForCausalLM");
  EXPECT_EQ(form_of({.attention = {.qk_norm = true}}).kind->architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(form_of({.sparse = sparse}).kind->architecture, "MixtralForCausalLM");
  EXPECT_EQ(form_of({.attention = {.qk_norm = true}, .sparse = sparse}).kind->architecture,
            "Qwen3MoeForCausalLM");
  EXPECT_EQ(
      form_of(
          {.attention = {.kv_lora_rank = 8},
           .sparse = {.experts = 4, .shared_experts = 1, .router_score = RouterScore::kSigmoid}})
          .kind->architecture,
      "DeepseekV3ForCausalLM");
}

// Every parameter once, and an expert's part of a parameter of all under a name of its own.
TEST(LlamaForm, HasATensorForEachExpert) {
  const HuggingFaceForm form = form_of({.attention = {.qk_norm = true}, .sparse = {.experts = 3}});
  int64_t slices = 0;
  for (const HuggingFaceTensor& tensor : form.tensors) slices += tensor.slice >= 0 ? 1 : 0;
  EXPECT_EQ(slices, 2 * 3 * 3);
  EXPECT_TRUE(std::ranges::any_of(form.tensors, [](const HuggingFaceTensor& tensor) {
    return tensor.name == "model.layers.1.mlp.experts.2.down_proj.weight" && tensor.slice == 2 &&
           tensor.parts == std::vector<std::string>{"model.layers.1.mlp.experts.down_proj"};
  }));
}

TEST(LlamaForm, NamesTheKeyForWhichTransformersHasNoClass) {
  const auto refusal = [](const ModelConfig& config) {
    return harness::message_of<ConfigError>([&] { form_of(config); });
  };
  EXPECT_THAT(refusal({.sparse = {.experts = 4, .shared_experts = 1}}),
              HasSubstr("model.shared_experts"));
  EXPECT_THAT(refusal({.sparse = {.experts = 4, .router_bias_rate = 0.1}}),
              HasSubstr("model.router_bias_rate"));
  EXPECT_THAT(refusal({.sparse = {.experts = 4, .expert_interval = 2}}),
              HasSubstr("model.expert_interval"));
  EXPECT_THAT(refusal({.attention = {.qk_norm = true},
                       .sparse = {.experts = 4, .router_score = RouterScore::kSigmoid}}),
              HasSubstr("model.router_score"));
  EXPECT_THAT(refusal({.attention = {.kv_lora_rank = 8}}), HasSubstr("model.experts"));
}

}  // namespace
}  // namespace trireme::model
