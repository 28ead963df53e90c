#include "trireme/plan/cost/workload.h"

#include <gtest/gtest.h>

#include "tests/plan/harness.h"

namespace trireme::plan {
namespace {

// Source: Narayanan et al. 2021, arXiv:2104.04473, table 1 and equation 2:
// 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)), and the last norm's 2 h, which it leaves out
TEST(ModelCounts, AreMegatronsTable) {
  struct Row {
    double billions;
    int64_t heads, width, layers;
  };
  constexpr Row kRows[] = {{1.7, 24, 2304, 24},      {3.6, 32, 3072, 30},
                           {7.5, 32, 4096, 36},      {18.4, 48, 6144, 40},
                           {39.1, 64, 8192, 48},     {76.1, 80, 10240, 60},
                           {145.6, 96, 12288, 80},   {310.1, 128, 16384, 96},
                           {529.6, 128, 20480, 105}, {1008.0, 160, 25600, 128}};
  for (const Row& row : kRows) {
    const model::ModelConfig config = gpt(row.layers, row.width, row.heads);
    const ModelCounts counts = count_model(config);
    const double h = number(row.width), l = number(row.layers);
    const double all =
        l * counts.dense_parameters + counts.embedding_parameters + counts.head_parameters;
    EXPECT_EQ(all, 12 * l * h * h + 13 * l * h + (51200 + 2048) * h + 2 * h) << row.billions;
    EXPECT_NEAR(all / 1e9, row.billions, 0.051) << row.billions;
    EXPECT_EQ(all, number(model::num_parameters(config)));
  }
}

// The numbers of parameters that the published checkpoints have.
TEST(ModelCounts, AreThoseOfThePublishedGemmas) {
  const model::ModelConfig gemma2_2b{.family = "gemma",
                                     .layers = 26,
                                     .width = 2304,
                                     .heads = 8,
                                     .kv_heads = 4,
                                     .ffn_width = 9216,
                                     .vocab_size = 256000,
                                     .tied_embedding = true,
                                     .attention = {.head_width = 256}};
  const model::ModelConfig gemma3_1b{.family = "gemma",
                                     .layers = 26,
                                     .width = 1152,
                                     .heads = 4,
                                     .kv_heads = 1,
                                     .ffn_width = 6912,
                                     .vocab_size = 262144,
                                     .tied_embedding = true,
                                     .attention = {.qk_norm = true, .head_width = 256}};
  for (const auto& [config, parameters] :
       {std::pair(gemma2_2b, 2614341888.0), {gemma3_1b, 999885952.0}}) {
    const ModelCounts counts = count_model(config);
    EXPECT_EQ(26 * counts.dense_parameters + counts.embedding_parameters, parameters);
    EXPECT_EQ(counts.head_parameters, 0);
    EXPECT_EQ(counts.feed_forward_matrices, 3);
    const double heads = number((config.heads + config.kv_heads) * 256);
    EXPECT_EQ(counts.attention_matmul, 2 * number(config.width) * heads);
  }
}

TEST(ModelCounts, PartsOfASparseModelAddUp) {
  const model::ModelConfig config = sparse_llama();
  const ModelCounts counts = count_model(config);
  EXPECT_EQ(counts.feed_forward_matrices, 3);
  EXPECT_EQ(counts.expert_parameters, 3 * 256 * 704);
  EXPECT_EQ(counts.dense_parameters + 3 * counts.sparse_parameters + counts.embedding_parameters +
                counts.head_parameters,
            number(model::num_parameters(config)));
  EXPECT_DOUBLE_EQ(counts.dense_flops + 3 * counts.sparse_flops + 6.0 * 51200 * 256,
                   counts.flops_per_token);
}

}  // namespace
}  // namespace trireme::plan
