#include "trireme/plan/cost/serving.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/harness.h"

namespace trireme::plan {
namespace {

model::ModelConfig llama(int64_t kv_heads, int64_t ffn_width, int64_t vocab_size) {
  model::ModelConfig config = gpt(32, 4096, 32);
  config.family = "llama";
  config.kv_heads = kv_heads;
  config.ffn_width = ffn_width;
  config.vocab_size = vocab_size;
  return config;
}
model::ModelConfig llama_2_7b() { return llama(32, 11008, 32000); }
model::ModelConfig llama_3_8b() { return llama(8, 14336, 128256); }

model::ModelConfig mixtral_8x7b() {
  model::ModelConfig config = llama(8, 14336, 32000);
  config.family = "mixtral";
  config.sparse.experts = 8;
  config.sparse.experts_per_token = 2;
  return config;
}

// A rate of one byte and one operation in each unit of time makes bounds counts.
Cluster unit_cluster() {
  Cluster cluster = cluster_of("a100-80gb", 1, 8);
  Device& device = cluster.device;
  device.peak_half = device.memory_rate = 1;
  device.product_share = device.attention_share = device.memory_share = 1;
  return cluster;
}

TEST(Serving, WeightsAndCacheOfLlama) {
  const Cluster cluster = cluster_of("a100-80gb", 1, 8);
  const ServingMemory two = Serving(llama_2_7b(), cluster, {.tensor = 1, .context = 4096}).memory();
  EXPECT_EQ(two.weights, 2 * 6738415616.0);
  EXPECT_EQ(two.cache_per_token, 524288);
  EXPECT_EQ(two.cache_per_sequence, 2.0 * (int64_t{1} << 30));
  // 80 GiB without 2 GiB for the driver and 12.55 GiB of weights.
  EXPECT_EQ(two.largest_batch, 32);
  const ServingMemory three =
      Serving(llama_3_8b(), cluster, {.tensor = 1, .context = 8192}).memory();
  EXPECT_EQ(three.weights, 2 * 8030261248.0);
  EXPECT_EQ(three.cache_per_token, 131072);
  EXPECT_EQ(three.largest_batch, 63);
}

TEST(Serving, NumbersOfOtherSizes) {
  const ServingMemory memory = Serving(llama_3_8b(), cluster_of("a100-80gb", 1, 8),
                                       {.tensor = 1, .weight_size = 0.5, .cache_size = 1})
                                   .memory();
  EXPECT_EQ(memory.weights, 8030261248.0 / 2);
  EXPECT_EQ(memory.cache_per_token, 65536);
}

TEST(Serving, RanksBeyondTheKeyHeadsHoldCopies) {
  const model::ModelConfig model = llama_3_8b();
  EXPECT_EQ(cached_numbers(model, 1), 2 * 8 * 128);
  EXPECT_EQ(cached_numbers(model, 4), 2 * 2 * 128);
  EXPECT_EQ(cached_numbers(model, 8), 2 * 128);
  EXPECT_EQ(cached_numbers(model, 32), 2 * 128);
}

// Source: DeepSeek-AI 2024, arXiv:2412.19437: 61 layers, a latent of 512 and a rotary key of 64
TEST(Serving, ALatentIsCachedOnceForAllHeads) {
  model::ModelConfig model = llama(32, 11008, 32000);
  model.layers = 61;
  model.attention.kv_lora_rank = 512;
  EXPECT_EQ(cached_numbers(model, 1), 576);
  EXPECT_EQ(cached_numbers(model, 8), 576);
  const Cluster cluster = cluster_of("a100-80gb", 1, 8);
  EXPECT_EQ(Serving(model, cluster, {}).memory().cache_per_token, 70272);
  // Each head multiplies the latent with its query and with its scores, and the rotary key.
  const auto cores = [&](int64_t context) {
    return Serving(model, unit_cluster(), {.tensor = 1, .context = context}).decode(1).compute;
  };
  EXPECT_EQ(cores(1001) - cores(1), 1000.0 * 61 * 32 * 2 * (2 * 512 + 64));
}

TEST(Serving, ATokenReadsWeightsAndCache) {
  const Serving serving(llama_2_7b(), unit_cluster(), {.tensor = 1, .context = 1024});
  // 32 blocks of 4 D^2 + 3 D F + 2 D, and the head of V D; of the embedding only a row.
  constexpr double kBlock = 4.0 * 4096 * 4096 + 3.0 * 4096 * 11008, kHead = 32000.0 * 4096;
  constexpr double kRead = 32 * (kBlock + 2 * 4096) + kHead;
  for (const int64_t batch : {1, 7}) {
    const ServingSeconds token = serving.decode(batch);
    const double cached = number(batch) * 1024;
    EXPECT_EQ(token.memory, 2 * kRead + cached * 524288);
    EXPECT_EQ(token.compute,
              number(batch) * 2 * (32 * kBlock + kHead) + cached * 32 * 32 * 4 * 128);
    EXPECT_EQ(token.tensor, 0);
  }
}

TEST(Serving, TensorRanksShareWorkAndAddTheirSums) {
  const Cluster cluster = cluster_of("a100-80gb", 1, 8);
  const model::ModelConfig model = llama_2_7b();
  const ServingSeconds one = Serving(model, cluster, {.tensor = 1, .context = 512}).decode(16),
                       eight = Serving(model, cluster, {.tensor = 8, .context = 512}).decode(16);
  EXPECT_DOUBLE_EQ(8 * eight.memory, one.memory);
  EXPECT_DOUBLE_EQ(8 * eight.compute, one.compute);
  // Two all-reduces a block of [16, D] in bf16, over NVLink.
  const Device& device = cluster.device;
  EXPECT_DOUBLE_EQ(eight.tensor, 64 * (2 * 7.0 / 8 * 16 * 4096 * 2 / (300e9 * device.link_share) +
                                       device.link_seconds));
  EXPECT_DOUBLE_EQ(eight.total(), std::max(eight.memory, eight.compute) + eight.tensor);
}

TEST(Serving, APromptIsBoundByItsProducts) {
  const Serving serving(llama_2_7b(), unit_cluster(), {.tensor = 1, .context = 1024});
  const ServingSeconds prompt = serving.prefill();
  constexpr double kBlock = 4.0 * 4096 * 4096 + 3.0 * 4096 * 11008, kHead = 32000.0 * 4096;
  // Logits of the last token only; attention skips what is masked.
  EXPECT_DOUBLE_EQ(prompt.compute,
                   1024 * 2 * 32 * kBlock + 2 * kHead + 32 * 0.5 * 4 * 1024 * 1024 * 4096.0);
  EXPECT_DOUBLE_EQ(prompt.memory, 2 * (32 * (kBlock + 2 * 4096) + kHead));
}

TEST(Serving, ABatchUsesMoreExperts) {
  const model::ModelConfig model = mixtral_8x7b();
  EXPECT_DOUBLE_EQ(expected_experts(model.sparse, 1), 2);
  EXPECT_DOUBLE_EQ(expected_experts(model.sparse, 2), 3.5);
  EXPECT_DOUBLE_EQ(expected_experts(model.sparse, 4), 5.46875);
  EXPECT_NEAR(expected_experts(model.sparse, 100), 8, 1e-9);
  EXPECT_EQ(expected_experts(llama_2_7b().sparse, 4), 0);
  const Serving serving(model, unit_cluster(), {.tensor = 1, .context = 1});
  const double more = serving.decode(2).memory - serving.decode(1).memory;
  EXPECT_DOUBLE_EQ(more, 2 * 32 * 1.5 * 3.0 * 4096 * 14336 + 131072);
}

TEST(Serving, TheFewestRanksHoldTheWeightsAndASequence) {
  const Cluster cluster = cluster_of("a100-80gb", 1, 8);
  EXPECT_EQ(fewest_tensor_ranks(llama_2_7b(), cluster, {.context = 4096}), 1);
  model::ModelConfig large = llama_3_8b();  // Llama 3 70B
  large.layers = 80;
  large.width = 8192;
  large.heads = 64;
  large.ffn_width = 28672;
  // 141 GB of weights: two devices have 167 GB.
  EXPECT_EQ(fewest_tensor_ranks(large, cluster, {.context = 4096}), 2);
  EXPECT_EQ(fewest_tensor_ranks(large, cluster_of("a100-80gb", 1, 1), {.context = 4096}), 0);
}

TEST(Serving, RanksMustDivideTheHeads) {
  const Cluster cluster = cluster_of("a100-80gb", 1, 8);
  EXPECT_THAT(([&] { Serving(llama_2_7b(), cluster, {.tensor = 3}); }),
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("divide the 32 heads")));
  EXPECT_THAT(([&] { Serving(llama_2_7b(), cluster, {.tensor = 16}); }),
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("8 devices")));
}

}  // namespace
}  // namespace trireme::plan
