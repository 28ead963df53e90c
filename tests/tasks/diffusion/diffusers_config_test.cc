#include "trireme/tasks/diffusion/diffusers_config.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::tasks {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const model::DitConfig kDit = {.image_size = 8,
                               .channels = 3,
                               .patch_size = 2,
                               .layers = 3,
                               .width = 24,
                               .heads = 4,
                               .classes = 5,
                               .norm_epsilon = 1e-5};

json written() { return json::parse(diffusers_config(kDit)); }

std::string refusal_of(const std::string& key, const json& value) {
  json changed = written();
  changed[key] = value;
  return harness::message_of<ConfigError>(
      [&] { parse_diffusers_config(changed.dump(), "config.json"); });
}

TEST(DiffusersConfig, WhatIsWrittenIsReadAgain) {
  const DiffusersModel read = parse_diffusers_config(diffusers_config(kDit), "config.json");
  EXPECT_FALSE(read.has_variances);
  visit_keys<model::DitConfig>(
      [&](const auto& key) { EXPECT_EQ(read.dit.*key.member, kDit.*key.member) << key.name; });
}

TEST(DiffusersConfig, MissingKeysAreThoseOfDiffusers) {
  json text = written();
  for (const char* key : {"norm_eps", "out_channels", "dropout", "activation_fn"}) text.erase(key);
  text["norm_type"] = nullptr;
  text["_diffusers_version"] = "0.42.1";
  const DiffusersModel read = parse_diffusers_config(text.dump(), "config.json");
  EXPECT_EQ(read.dit.norm_epsilon, 1e-5);
  EXPECT_FALSE(read.has_variances);
}

TEST(DiffusersConfig, TwiceTheChannelsAreVariances) {
  json text = written();
  text["out_channels"] = 6;
  text["_class_name"] = "Transformer2DModel";
  EXPECT_TRUE(parse_diffusers_config(text.dump(), "config.json").has_variances);
}

TEST(DiffusersConfig, WhatIsNotComputedHereIsRefusedByItsKey) {
  EXPECT_THAT(refusal_of("_class_name", "UNet2DModel"),
              AllOf(HasSubstr("config.json: _class_name"), HasSubstr("UNet2DModel"),
                    HasSubstr("DiTTransformer2DModel")));
  EXPECT_THAT(refusal_of("activation_fn", "geglu"), HasSubstr("gelu-approximate"));
  EXPECT_THAT(refusal_of("dropout", 0.1), AllOf(HasSubstr("dropout"), HasSubstr("0.1")));
  EXPECT_THAT(refusal_of("cross_attention_dim", 64), HasSubstr("cross_attention_dim"));
  EXPECT_THAT(refusal_of("out_channels", 4), HasSubstr("in_channels, 3"));
  EXPECT_THAT(refusal_of("num_embeds_ada_norm", nullptr), HasSubstr("num_embeds_ada_norm"));
  EXPECT_THAT(refusal_of("rotary", true),
              AllOf(HasSubstr("rotary"), HasSubstr("remove it if it does not")));
  EXPECT_THAT(refusal_of("patch_size", 3), HasSubstr("model.patch_size = 3"));
  EXPECT_THAT(refusal_of("attention_head_dim", 1 << 19), HasSubstr("attention_head_dim"));
}

TEST(DiffusersScheduler, WhatIsWrittenIsReadAgain) {
  const NoiseConfig cosine{
      .timesteps = 50, .schedule = model::NoiseForm::kCosine, .beta_start = 1e-3, .beta_end = 0.5};
  NoiseConfig read{.class_dropout = 0.25};
  take_diffusers_scheduler(diffusers_scheduler(cosine), "scheduler_config.json", read);
  EXPECT_EQ(read.timesteps, cosine.timesteps);
  EXPECT_EQ(read.schedule, cosine.schedule);
  EXPECT_EQ(read.beta_start, cosine.beta_start);
  EXPECT_EQ(read.beta_end, cosine.beta_end);
  EXPECT_EQ(read.class_dropout, 0.25);
}

TEST(DiffusersScheduler, OtherNoiseIsRefusedByItsKey) {
  const auto refusal = [](const std::string& key, const json& value) {
    json changed = json::parse(diffusers_scheduler({}));
    changed[key] = value;
    NoiseConfig noise;
    return harness::message_of<ConfigError>(
        [&] { take_diffusers_scheduler(changed.dump(), "scheduler_config.json", noise); });
  };
  EXPECT_EQ(refusal("solver_order", 3), "");
  EXPECT_EQ(refusal("trained_betas", nullptr), "");
  EXPECT_THAT(refusal("prediction_type", "v_prediction"), HasSubstr("epsilon"));
  EXPECT_THAT(refusal("trained_betas", json::array({0.1})), HasSubstr("trained_betas"));
  EXPECT_THAT(refusal("rescale_betas_zero_snr", true), HasSubstr("rescale_betas_zero_snr"));
  EXPECT_THAT(refusal("beta_schedule", "sigmoid"), HasSubstr("squaredcos_cap_v2"));
  EXPECT_THAT(refusal("num_train_timesteps", 0), HasSubstr("num_train_timesteps"));
  EXPECT_THAT(refusal("shift", 3), AllOf(HasSubstr("shift"), HasSubstr("remove it")));
}

}  // namespace
}  // namespace trireme::tasks
