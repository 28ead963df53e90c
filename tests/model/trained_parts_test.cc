#include "trireme/model/trained_parts.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "trireme/base/patterns.h"
#include "trireme/model/family/family.h"

namespace trireme::model {
namespace {

std::set<std::string> frozen_names(const ModelConfig& config, const std::string& patterns) {
  std::set<std::string> names;
  const ModelPlan plan = make_plan(config);
  for (const ParameterPlan& parameter : plan.parameters()) {
    if (!parameter.is_trained || matches_any(patterns, parameter.name))
      names.insert(parameter.name);
  }
  return names;
}

double flops(const ModelConfig& config, const std::string& freeze = "") {
  return trained_parts(make_plan(config), frozen_names(config, freeze)).flops_per_sequence();
}

// Four blocks with 480 weights in products each: q and o [8, 8], k and v [4, 8], three [8, 12].
ModelConfig tiny() {
  return {.family = "llama",
          .layers = 4,
          .width = 8,
          .heads = 2,
          .kv_heads = 1,
          .ffn_width = 12,
          .sequence_length = 5,
          .vocab_size = 11};
}
// The same with a tower of three blocks, whose last does not run.
ModelConfig with_images(double images_per_sequence) {
  ModelConfig config = tiny();
  config.vision = {.layers = 3,
                   .width = 6,
                   .heads = 2,
                   .ffn_width = 10,
                   .image_size = 4,
                   .patch_size = 2,
                   .image_token = 3};
  config.vision.images_per_sequence = images_per_sequence;
  return config;
}
constexpr double kBlock = 2 * 5 * 480, kHead = 2 * 5 * 88;
constexpr double kScores = 2 * 2 * 5 * 5 * 8;  // q k^T and its product with v, of two heads of 4

TEST(TrainedParts, OfATrainedModelAreAllItsOperations) {
  const double all = 3 * (4 * (kBlock + kScores) + kHead);
  EXPECT_DOUBLE_EQ(flops(tiny()), all);
  EXPECT_DOUBLE_EQ(flops_per_sequence(tiny()), all);
  // Norms of the first block are behind the embedding, and learn.
  EXPECT_DOUBLE_EQ(flops(tiny(), "*embed*"), all);
  EXPECT_DOUBLE_EQ(flops(tiny(), "*norm*"), all);
}

TEST(TrainedParts, AFrozenWeightHasNoGradientOfItsOwn) {
  const double all = 3 * (4 * (kBlock + kScores) + kHead);
  EXPECT_DOUBLE_EQ(flops(tiny(), "lm_head.*"), all - kHead);
  EXPECT_DOUBLE_EQ(flops(tiny(), "*mlp*"), all - 4 * 2 * 5 * 3 * 96);
  ModelConfig tied = tiny();
  tied.tied_embedding = true;
  EXPECT_DOUBLE_EQ(flops(tied), all);
  EXPECT_DOUBLE_EQ(flops(tied, "*embed*"), all - kHead);
}

TEST(TrainedParts, BlocksBeforeTheFirstTrainedOneHaveNoBackward) {
  EXPECT_DOUBLE_EQ(flops(tiny(), "*embed*, model.layers.[01].*"),
                   (2 + 3 * 2) * (kBlock + kScores) + 3 * kHead);
  EXPECT_DOUBLE_EQ(flops(tiny(), "model.layers.[01].*"),  // the embedding learns through them
                   4 * (3 * (kBlock + kScores)) + 3 * kHead - 2 * kBlock);
  EXPECT_DOUBLE_EQ(flops(tiny(), "*embed*, model.layers.*, *norm*"),
                   4 * (kBlock + kScores) + 2 * kHead);  // nobody wants its input's gradient
}

TEST(TrainedParts, AdaptersAreTrainedAndWhatTheyAreAddedToIsNot) {
  ModelConfig config = tiny();
  config.lora.rank = 2;
  // r (in + out) of seven layers.
  const double adapters = 2.0 * 5 * 2 * (2 * (8 + 8) + 2 * (8 + 4) + 3 * (8 + 12));
  const double alone = 4 * (2 * kBlock + 3 * adapters + 3 * kScores) + 2 * kHead;
  EXPECT_DOUBLE_EQ(flops(config), alone);
  config.lora.also_train = "*.o_proj.weight, lm_head.*, *norm*";
  EXPECT_DOUBLE_EQ(flops(config), alone + 4 * (2 * 5 * 64) + kHead);
  config.lora = {.rank = 2, .targets = "model.layers.3.*.o_proj"};
  EXPECT_DOUBLE_EQ(flops(config), 3 * (kBlock + kScores) + 2 * kBlock + 3 * kScores +
                                      3 * (2.0 * 5 * 2 * 16) + 2 * kHead);
}

TEST(TrainedParts, CodesAreTheWeightsThatTheyStandFor) {
  ModelConfig config = tiny();
  config.width = 64;
  config.ffn_width = 128;
  config.lora.rank = 2;
  const double plain = flops(config);
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kNf4}) {
    config.lora.base = format;
    EXPECT_DOUBLE_EQ(flops(config), plain);
  }
}

ModelConfig t5() {
  ModelConfig config = tiny();
  config.family = "t5";
  config.kv_heads = 2;
  config.seq2seq.decoder_layers = 3;
  config.seq2seq.target_length = 4;
  return config;
}

TEST(TrainedParts, OfEveryFamilyAddUpToItsOperations) {
  ModelConfig gpt2 = tiny(), bert = tiny(), gemma = tiny(), sparse = tiny(), latent = tiny(),
              images = with_images(1.5);
  gpt2.family = "gpt2";
  bert.family = "bert";
  gpt2.kv_heads = bert.kv_heads = latent.kv_heads = 2;
  gemma.family = "gemma";
  gemma.attention.head_width = 6;
  ModelConfig classifier = bert;
  classifier.classes = 3;
  sparse.family = "mixtral";
  sparse.sparse = {.experts = 6,
                   .experts_per_token = 2,
                   .expert_width = 9,
                   .shared_experts = 1,
                   .shared_gate = true,
                   .dense_layers = 1,
                   .expert_bias = true};
  latent.attention.kv_lora_rank = 5;
  latent.attention.q_lora_rank = 7;
  latent.attention.qk_nope_width = 2;
  latent.attention.qk_rope_width = 4;
  latent.attention.v_head_width = 3;
  ModelConfig tied_t5 = t5(), gated_t5 = t5();
  tied_t5.tied_embedding = true;
  gated_t5.seq2seq.feed_forward = FeedForwardForm::kGatedGelu;
  for (const ModelConfig& config :
       {gpt2, bert, classifier, gemma, sparse, latent, images, t5(), tied_t5, gated_t5}) {
    EXPECT_NEAR(flops(config), flops_per_sequence(config), 1e-9 * flops(config)) << config.family;
  }
}

TEST(TrainedParts, AFrozenEncoderHasNoBackwardNorTheKeysThatAreReadFromIt) {
  const TrainedParts parts = trained_parts(
      make_plan(t5()), frozen_names(t5(), "shared.*, encoder.*, *.k.weight, *.v.weight"));
  for (size_t block = 0; block < 4; ++block) {
    EXPECT_FALSE(parts.blocks[block].has_backward);
    EXPECT_EQ(parts.blocks[block].flops(), parts.blocks[block].forward);
  }
  for (size_t block = 4; block < 7; ++block) {
    const TrainedPart& part = parts.blocks[block];
    const double across = 2 * 5 * (2 * 64), scores = 2 * 2 * 4 * (4 + 5) * 8;
    EXPECT_TRUE(part.has_backward);
    EXPECT_DOUBLE_EQ(part.input_gradients, part.forward - across + scores);
    // q and o twice, and the feed-forward.
    EXPECT_DOUBLE_EQ(part.weight_gradients, 2 * 4 * (4 * 64 + 2 * 96));
  }
}

TEST(TrainedParts, ATowerReadsNothingThatIsTrainedBeforeIt) {
  const ModelConfig config = with_images(1);
  const auto parts = [&](const std::string& freeze) {
    return trained_parts(make_plan(config), frozen_names(config, freeze)).images;
  };
  const std::vector<TrainedPart> frozen = parts("*vision_tower*");
  ASSERT_EQ(frozen.size(), 4u);  // of three blocks the last does not run
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(frozen[i].flops(), frozen[i].forward);
  EXPECT_DOUBLE_EQ(frozen[3].flops(), 3 * frozen[3].forward);
  const std::vector<TrainedPart> all = parts("");
  EXPECT_EQ(all[0].input_gradients, 0);  // of pixels
  EXPECT_DOUBLE_EQ(all[1].flops(), 3 * all[1].forward);
}

}  // namespace
}  // namespace trireme::model
