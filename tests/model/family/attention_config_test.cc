#include "trireme/model/family/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(ModelConfig config) {
  config.vocab_size = 11;
  return harness::message_of<ConfigError>([&] { validate(config); });
}

TEST(AttentionConfig, SaysWhichKeysDoNotGoTogether) {
  const AttentionConfig latent{.kv_lora_rank = 8};
  EXPECT_EQ(refusal({.attention = latent}), "");
  EXPECT_EQ(refusal({.attention = {.qk_norm = true}}), "");
  EXPECT_EQ(refusal({.attention = {.qk_norm = true, .qk_norm_over = QkNormOver::kAll}}), "");
  EXPECT_THAT(refusal({.attention = {.qk_norm_over = QkNormOver::kAll}}),
              AllOf(HasSubstr("model.qk_norm_over is \"all\""), HasSubstr("model.qk_norm false")));
  EXPECT_THAT(refusal({.attention = {.q_lora_rank = 4}}), HasSubstr("set model.kv_lora_rank"));
  EXPECT_THAT(refusal({.attention = {.qk_norm = true, .kv_lora_rank = 8}}),
              AllOf(HasSubstr("model.qk_norm"), HasSubstr("false")));
  EXPECT_THAT(refusal({.kv_heads = 2, .attention = latent}),
              AllOf(HasSubstr("model.kv_heads is 2"), HasSubstr("set model.kv_heads to 4")));
  EXPECT_THAT(refusal({.attention = {.kv_lora_rank = 8, .qk_rope_width = 3}}),
              HasSubstr("model.qk_rope_width is 3"));
  EXPECT_THAT(refusal({.family = "gpt2", .attention = latent}), HasSubstr("plain attention"));
  EXPECT_THAT(refusal({.width = 12, .heads = 4}), HasSubstr("odd width 3"));
  EXPECT_THAT(refusal({.attention = {.attention_bias = true, .kv_lora_rank = 8}}),
              HasSubstr("model.attention_bias is 1"));
  EXPECT_THAT(refusal({.attention = {.head_width = 8, .kv_lora_rank = 8}}),
              HasSubstr("model.head_width 8"));
  EXPECT_THAT(refusal({.family = "gpt2", .attention = {.head_width = 8}}),
              HasSubstr("plain attention"));
}

TEST(AttentionConfig, ScoresOfTheirOwnAreForOrdinaryAttention) {
  for (const AttentionConfig& scores :
       {AttentionConfig{.query_scalar = 5}, {.attention_softcap = 2}, {.attention_sinks = true}}) {
    EXPECT_EQ(refusal({.attention = scores}), "");
    AttentionConfig latent = scores;
    latent.kv_lora_rank = 8;
    EXPECT_THAT(refusal({.attention = latent}), HasSubstr("which has none of them"));
    EXPECT_THAT(refusal({.family = "gpt2", .attention = scores}), HasSubstr("plain scores"));
  }
}

TEST(AttentionConfig, AWindowIsOnTheLayersOfItsLetters) {
  const AttentionConfig some{.window = 4, .window_layers = "wwf"};
  std::vector<int64_t> windows;
  for (int64_t layer = 0; layer < 7; ++layer) windows.push_back(some.window_of(layer));
  EXPECT_THAT(windows, testing::ElementsAre(4, 4, 0, 4, 4, 0, 4));
  EXPECT_EQ(refusal({.attention = some}), "");
  for (const char* letters : {"", "x", "wx", "W"}) {
    EXPECT_THAT(refusal({.attention = {.window = 4, .window_layers = letters}}),
                HasSubstr("model.window_layers is"));
  }
  EXPECT_THAT(refusal({.attention = {.window_layers = "wf"}}), HasSubstr("model.window 0"));
  EXPECT_THAT(refusal({.attention = {.window = 4, .kv_lora_rank = 8}}),
              HasSubstr("attention latent"));
  EXPECT_THAT(refusal({.family = "gpt2", .attention = {.window = 4}}), HasSubstr("model.window 4"));
}

TEST(AttentionConfig, HeadsOfAGivenWidthNeedNotDivideTheModels) {
  const ModelConfig config{.width = 30, .heads = 4, .kv_heads = 2, .attention = {.head_width = 10}};
  EXPECT_EQ(refusal(config), "");
  EXPECT_EQ(config.head_width(), 10);
  EXPECT_THAT(refusal({.attention = {.head_width = 9}}), HasSubstr("odd width 9"));
  EXPECT_THAT(refusal({.heads = 1 << 16, .kv_heads = 1, .attention = {.head_width = 1 << 16}}),
              HasSubstr("at most 1048576"));
}

TEST(AttentionConfig, TheCoreHasTheWidestWidth) {
  EXPECT_EQ(
      (AttentionConfig{.qk_nope_width = 3, .qk_rope_width = 4, .v_head_width = 5}.core_width()), 7);
  EXPECT_EQ(
      (AttentionConfig{.qk_nope_width = 3, .qk_rope_width = 4, .v_head_width = 9}.core_width()), 9);
}

}  // namespace
}  // namespace trireme::model
