// The families that docs/guide/import.md lists, each with what makes it one, on the axes of its
// table: a step is that of one rank. layouts_test.cc has the parts of the models on every axis.
#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/parity/layout_step.h"
#include "trireme/model/generate.h"
#include "trireme/model/likelihood.h"
#include "trireme/tasks/language/generation/text_ranks.h"

namespace trireme::train {
namespace {

using FamilyLayouts = LayoutsTest;

struct FamilyKeys {
  const char* name;
  std::vector<Override> keys;
};

// A block of the tower does not run.
std::vector<Override> llava_keys() {
  return {{"vision.layers", "3"},      {"vision.width", "15"},     {"vision.heads", "5"},
          {"vision.ffn_width", "21"},  {"vision.image_size", "6"}, {"vision.patch_size", "3"},
          {"vision.image_token", "5"}, {"data.packing", "whole"}};
}

const std::vector<FamilyKeys>& families() {
  static const std::vector<Override> experts = {{"model.experts", "5"},
                                                {"model.expert_width", "13"},
                                                {"model.experts_per_token", "2"},
                                                {"model.balance_loss", "0.3"}};
  const auto with_experts = [&](std::vector<Override> keys) {
    keys.insert(keys.begin(), experts.begin(), experts.end());
    return keys;
  };
  static const std::vector<FamilyKeys> all = {
      {"llama", {}},
      {"llama 3.1",
       {{"model.rope_scaling", "llama3"},
        {"model.rope_factor", "4"},
        {"model.rope_original_length", "6"},
        {"model.tied_embedding", "true"}}},
      {"mistral", {{"model.window", "4"}, {"model.head_width", "6"}}},
      {"qwen2", {{"model.attention_bias", "true"}}},
      {"qwen3", {{"model.qk_norm", "true"}, {"model.head_width", "10"}}},
      {"phi3", {{"model.kv_heads", "6"}, {"model.rotary_share", "0.5"}}},
      {"smollm3", {{"model.rope_layers", "rrn"}, {"model.tied_embedding", "true"}}},
      {"granite",
       {{"model.embedding_scale", "3"},
        {"model.residual_scale", "0.22"},
        {"model.logits_divisor", "0.7"},
        {"model.query_scalar", "5"}}},
      {"olmo2",
       {{"model.branch_norms", "after"}, {"model.qk_norm", "true"}, {"model.qk_norm_over", "all"}}},
      {"olmo3",
       {{"model.branch_norms", "after"},
        {"model.qk_norm", "true"},
        {"model.qk_norm_over", "all"},
        {"model.window", "4"},
        {"model.window_layers", "wwwf"},
        {"model.rope_local_base", "50"},
        {"model.rope_scaling", "yarn"},
        {"model.rope_factor", "4"},
        {"model.rope_original_length", "6"}}},
      {"glm4",
       {{"model.branch_norms", "both"},
        {"model.rotary_share", "0.5"},
        {"model.attention_bias", "true"}}},
      {"mixtral", with_experts({{"model.family", "mixtral"}})},
      {"qwen2_moe", with_experts({{"model.attention_bias", "true"},
                                  {"model.shared_experts", "2"},
                                  {"model.shared_gate", "true"},
                                  {"model.dense_layers", "1"},
                                  {"model.router_normalise", "false"}})},
      {"qwen3_moe", with_experts({{"model.qk_norm", "true"},
                                  {"model.expert_interval", "2"},
                                  {"model.router_normalise", "true"}})},
      {"deepseek_v3", with_experts({{"model.kv_heads", "6"},
                                    {"model.kv_lora_rank", "8"},
                                    {"model.q_lora_rank", "7"},
                                    {"model.qk_nope_width", "3"},
                                    {"model.qk_rope_width", "2"},
                                    {"model.v_head_width", "5"},
                                    {"model.experts", "6"},
                                    {"model.shared_experts", "1"},
                                    {"model.dense_layers", "1"},
                                    {"model.router_score", "sigmoid"},
                                    {"model.router_normalise", "true"},
                                    {"model.router_bias_rate", "0.05"},
                                    {"model.router_scale", "2.5"},
                                    {"model.expert_groups", "3"},
                                    {"model.groups_per_token", "2"}})},
      {"gpt_oss", with_experts({{"model.expert_bias", "true"},
                                {"model.swiglu_limit", "0.02"},
                                {"model.attention_bias", "true"},
                                {"model.attention_output_bias", "true"},
                                {"model.attention_sinks", "true"},
                                {"model.window", "4"},
                                {"model.window_layers", "wf"},
                                {"model.rope_scaling", "yarn"},
                                {"model.rope_factor", "4"},
                                {"model.rope_original_length", "6"},
                                {"model.rope_truncate", "false"}})},
      {"gemma2",
       {{"model.family", "gemma"},
        {"model.tied_embedding", "true"},
        {"model.head_width", "6"},
        {"model.query_scalar", "2"},
        {"model.attention_softcap", "0.1"},
        {"model.logits_softcap", "0.3"},
        {"model.window", "4"},
        {"model.window_layers", "wf"}}},
      {"gemma3_text",
       {{"model.family", "gemma"},
        {"model.qk_norm", "true"},
        {"model.window", "4"},
        {"model.window_layers", "wf"},
        {"model.rope_local_base", "50"},
        {"model.rope_base", "500"},
        {"model.rope_scaling", "linear"},
        {"model.rope_factor", "4"}}},
      {"llava", llava_keys()},
      {"gpt2", {{"model.family", "gpt2"}, {"model.kv_heads", "6"}}},
      {"bert",
       {{"model.family", "bert"},
        {"model.kv_heads", "6"},
        {"model.token_types", "2"},
        {"data.masked_share", "0.15"}}},
      {"t5",
       {{"model.family", "t5"},
        {"model.kv_heads", "6"},
        {"model.tied_embedding", "true"},
        {"model.relative_buckets", "8"},
        {"model.relative_distance", "12"},
        {"model.target_length", "11"},
        {"data.masked_share", "0.4"},
        {"data.span_length", "1"},
        {"data.sentinel_token", "36"}}}};
  return all;
}

// In fp64, where no two logits are as near as the roundings of a sum in another order. Texts
// outlive the sequence length.
TEST_F(FamilyLayouts, EachWritesTheSameTextWithTheKeysThatItKept) {
  for (const FamilyKeys& family : families()) {
    SCOPED_TRACE(family.name);
    const model::ModelConfig config = model_of(config_of(family.keys));
    if (!config.is_causal() || config.has_decoder()) continue;
    const auto model = model::make_model(config, 3, at::kDouble);
    const std::vector<std::vector<int64_t>> prompts = {{3, 1, 2}, {4}, {7, 7, 8, 9}};
    model::GenerateOptions options{.max_tokens = config.sequence_length + 3, .temperature = 0.9};
    const auto kept = model::generate_texts(*model, prompts, options);
    options.keeps_keys = false;
    EXPECT_EQ(model::generate_texts(*model, prompts, options), kept);
  }
}

using Texts = std::vector<std::vector<int64_t>>;

using Scores = std::vector<std::vector<double>>;

// What copies of a model on ranks say of texts. Every rank of a copy must have the same.
struct Asked {
  Texts texts;
  Scores scores;  // three for each token but the first
};
Asked ask(model::TextModel& model, const Texts& prompts, const model::GenerateOptions& options) {
  Asked asked{model::generate_texts(model, prompts, options), Scores(prompts.size())};
  std::vector<model::AskedText> texts;
  for (const std::vector<int64_t>& prompt : prompts) texts.push_back({prompt});
  texts.back().first = 2;
  model::score_texts(model, texts, [&](size_t number, auto scores) {
    EXPECT_EQ(scores.size(), texts[number].tokens.size() - texts[number].first);
    for (const model::TokenScore& score : scores) {
      asked.scores[number].push_back(score.log_probability);
      asked.scores[number].push_back(static_cast<double>(score.likeliest));
      asked.scores[number].push_back(score.likeliest_log_probability);
    }
  });
  return asked;
}

Asked ask_ranks(const RunConfig& trained, const std::vector<Override>& layout, int num_ranks,
                const Texts& prompts, const model::GenerateOptions& options) {
  const RunConfig config = tasks::generation_config(trained, layout, num_ranks);
  Asked all{Texts(prompts.size()), Scores(prompts.size())};
  std::vector<bool> is_known(prompts.size());
  std::mutex mutex;
  harness::run_ranks(num_ranks, [&](comm::Communicator& world) {
    tasks::TextRanks model(config, world);
    const Asked mine = ask(model, prompts, options);
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < prompts.size(); ++i) {
      if (i % model.num_copies() != model.copy()) {
        EXPECT_TRUE(mine.texts[i].empty() && mine.scores[i].empty());
      } else if (is_known[i]) {
        EXPECT_EQ(mine.texts[i], all.texts[i]);
        EXPECT_EQ(mine.scores[i], all.scores[i]);
      } else {
        all.texts[i] = mine.texts[i];
        all.scores[i] = mine.scores[i];
        is_known[i] = true;
      }
    }
  });
  EXPECT_EQ(std::ranges::count(is_known, false), 0);
  return all;
}

// Texts of several lengths, more than are read at one time, so that copies end at other times and
// pipelines have groups of none. One is longer than a sequence.
TEST_F(FamilyLayouts, EachWritesTheSameTextsOnRanks) {
  const Texts prompts = {{3, 1, 2},
                         {4},
                         {7, 7, 8, 9, 1, 2, 3, 4, 6, 6, 7, 8, 9, 10, 11, 12, 1, 1, 30, 0},
                         {15, 6},
                         {11, 12, 13}};
  struct Ranks {
    int number;
    std::vector<Override> layout;
  };
  const std::vector<Ranks> layouts = {
      {4, {{"parallel.pipeline", "2"}, {"parallel.tensor", "2"}}},
      {2, {{"parallel.tensor", "2"}}},
      {3, {{"parallel.pipeline", "3"}, {"parallel.stage_layers", "1,2,1"}}},
      {3, {{"parallel.tensor", "3"}}},
      {2, {}},
      {2, {{"parallel.zero", "3"}}},
      {2, {{"parallel.expert", "2"}}},
      {4, {{"parallel.expert", "2"}, {"parallel.pipeline", "2"}}},
      {4, {{"parallel.expert", "2"}, {"parallel.tensor", "2"}, {"parallel.expert_chunk", "2"}}}};
  for (const FamilyKeys& family : families()) {
    const RunConfig trained = config_of(family.keys);
    const model::ModelConfig& config = model_of(trained);
    if (!config.is_causal() || config.has_decoder()) continue;
    const model::GenerateOptions options{.max_tokens = config.sequence_length + 1,
                                         .temperature = 0.9,
                                         .stop_tokens = {21},
                                         .repetition_penalty = 1.1,
                                         .texts_at_once = 3};
    const auto whole = model::make_model(config, trained.train.seed, at::kDouble);
    const Asked expected = ask(*model::make_text_model(*whole), prompts, options);
    // Copies and experts meet each family's attention in the same way.
    const bool is_dense = config.sparse.experts == 0;
    const bool is_plain = &family == &families().front();
    for (const Ranks& ranks : layouts) {
      SCOPED_TRACE(concat(family.name, " ", describe(ranks.layout)));
      if (is_dense && !is_plain && &ranks != &layouts.front()) continue;
      if (is_dense && describe(ranks.layout).find("expert") != std::string::npos) continue;
      const Asked found = ask_ranks(trained, ranks.layout, ranks.number, prompts, options);
      EXPECT_EQ(found.texts, expected.texts);
      for (size_t i = 0; i < prompts.size(); ++i) {
        ASSERT_EQ(found.scores[i].size(), expected.scores[i].size());
        for (size_t j = 0; j < found.scores[i].size(); ++j)
          EXPECT_NEAR(found.scores[i][j], expected.scores[i][j], 1e-10);
      }
    }
  }
}

TEST_F(FamilyLayouts, EachIsTheOneRankOnTheAxesOfTheTable) {
  const std::vector<std::vector<Override>> axes = {
      {{"parallel.tensor", "2"}},
      {{"parallel.context", "2"}},
      {{"parallel.pipeline", "2"}, {"parallel.schedule", "1f1b"}},
      {{"parallel.data", "2"}, {"parallel.zero", "3"}}};
  for (const FamilyKeys& family : families()) {
    SCOPED_TRACE(family.name);
    for (std::vector<Override> overrides : axes) {
      overrides.insert(overrides.end(), family.keys.begin(), family.keys.end());
      check(overrides, 2);
    }
  }
}

// Two ranks have a kv head each, more ranks share both, and four have unequal numbers of queries.
TEST_F(FamilyLayouts, ANormOfAllHeadsIsTheOneRankHoweverTheyAreDivided) {
  const std::vector<std::pair<int, std::vector<Override>>> layouts = {
      {2, {{"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}}},
      {3, {{"parallel.tensor", "3"}, {"train.recompute", "selective"}}},
      {3,
       {{"parallel.tensor", "3"},
        {"parallel.sequence_parallel", "true"},
        {"lora.rank", "2"},
        {"lora.also_train", "*norm*"}}},
      {4, {{"parallel.tensor", "4"}, {"model.dropout", "0.1"}}},
      {4,
       {{"parallel.tensor", "2"},
        {"parallel.context", "2"},
        {"parallel.context_form", "all-to-all"},
        {"train.recompute", "full"}}},
      {4, {{"parallel.tensor", "2"}, {"parallel.data", "2"}, {"parallel.zero", "3"}}},
      {4,
       {{"parallel.tensor", "2"},
        {"parallel.pipeline", "2"},
        {"parallel.schedule", "zero-bubble"}}}};
  for (const auto& [num_ranks, keys] : layouts) {
    std::vector<Override> overrides = {{"model.kv_heads", "2"},
                                       {"model.qk_norm", "true"},
                                       {"model.qk_norm_over", "all"},
                                       {"model.branch_norms", "after"}};
    overrides.insert(overrides.end(), keys.begin(), keys.end());
    check(overrides, num_ranks);
  }
}

// A rank has no image, or those of several sequences, and only a part of an image's tokens.
TEST_F(FamilyLayouts, AModelOfImagesIsTheOneRankOnPairsOfAxes) {
  const std::vector<std::pair<int, std::vector<Override>>> layouts = {
      {2, {{"parallel.data", "2"}, {"parallel.zero", "1"}}},
      {2, {{"parallel.data", "2"}, {"parallel.zero", "2"}, {"train.freeze", "*vision_tower*"}}},
      {2,
       {{"parallel.data", "2"},
        {"parallel.zero", "3"},
        {"train.freeze", "*vision_tower*, *layers*"}}},
      {2, {{"parallel.data", "2"}, {"parallel.zero", "3"}, {"train.recompute", "full"}}},
      {2, {{"parallel.tensor", "2"}, {"parallel.sequence_parallel", "true"}}},
      {3,
       {{"parallel.tensor", "3"},
        {"parallel.sequence_parallel", "true"},
        {"train.micro_batch", "2"}}},
      {2, {{"parallel.context", "2"}, {"parallel.context_form", "all-to-all"}}},
      {4,
       {{"parallel.context", "2"},
        {"parallel.tensor", "2"},
        {"parallel.sequence_parallel", "true"}}},
      {2,
       {{"parallel.pipeline", "2"},
        {"parallel.schedule", "1f1b"},
        {"train.freeze", "*vision_tower*"}}},
      {2, {{"parallel.pipeline", "2"}, {"parallel.schedule", "zero-bubble"}}},
      {4, {{"parallel.pipeline", "2"}, {"parallel.schedule", "1f1b"}, {"parallel.tensor", "2"}}},
      {4, {{"parallel.data", "2"}, {"parallel.zero", "3"}, {"parallel.pipeline", "2"}}},
      {2,
       {{"lora.rank", "2"},
        {"lora.also_train", "*multi_modal_projector*"},
        {"parallel.tensor", "2"}}}};
  for (const auto& [num_ranks, keys] : layouts) {
    std::vector<Override> overrides = llava_keys();
    overrides.insert(overrides.end(), keys.begin(), keys.end());
    check(overrides, num_ranks);
  }
}

}  // namespace
}  // namespace trireme::train
