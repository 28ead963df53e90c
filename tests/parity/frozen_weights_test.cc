// Adapters over weights that are frozen as codes (lora.base): the same as over the numbers that the
// codes stand for, on every axis.
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/parity/axis_choices.h"
#include "tests/parity/layout_step.h"
#include "trireme/base/machine/weight_codes.h"
#include "trireme/model/family/adapter_config.h"
#include "trireme/model/family/init.h"

namespace trireme::train {
namespace {

using FrozenWeights = LayoutsTest;

// 2 and 3 ranks cut each matrix between its scales.
std::vector<Override> frozen_model(const std::string& format, const std::string& kind) {
  std::vector<Override> overrides = {{"lora.rank", "3"},    {"lora.base", format},
                                     {"model.width", "64"}, {"model.head_width", "64"},
                                     {"model.layers", "4"}, {"model.ffn_width", "384"}};
  const auto set = [&](const char* key, const char* value) { overrides.emplace_back(key, value); };
  if (kind == "gpt2") {
    set("model.family", "gpt2");
    set("model.head_width", "0");
    set("model.width", "384");
    set("model.kv_heads", "6");
  } else if (kind == "latent") {
    set("model.head_width", "0");
    set("model.width", "192");
    set("model.kv_heads", "6");
    set("model.kv_lora_rank", "64");
    set("model.q_lora_rank", "64");
    set("model.qk_nope_width", "2");
    set("model.qk_rope_width", "2");
    set("model.v_head_width", "64");
  } else if (kind == "experts") {
    set("model.experts", "4");
    set("model.expert_width", "384");
    set("model.shared_experts", "1");
  }
  return overrides;
}

TEST_F(FrozenWeights, AStepIsThatOnTheNumbersThatTheCodesStandFor) {
  for (const auto& [name, format] : {std::pair("bf16", WeightFormat::kBf16),
                                     {"int8", WeightFormat::kInt8},
                                     {"nf4", WeightFormat::kNf4}}) {
    for (const char* kind : {"llama", "latent"}) {
      for (const char* precision : {"fp64", "bf16"}) {
        auto overrides = frozen_model(name, kind);
        overrides.emplace_back("train.precision", precision);
        SCOPED_TRACE(describe(overrides));
        const StepOutcome actual = run(config_of(overrides), 1, fill_adapters);
        overrides.emplace_back("lora.base", "run");
        const RunConfig config = config_of(overrides);
        const auto rounded = [&config, format = format](ParallelModel& model) {
          for (const parallel::Shard& shard : model.shards()) {
            const at::Tensor& weight = shard.weights;
            const bool is_of_block = shard.name.find(".layers.") != shard.name.npos;
            if (shard.is_trained || weight.dim() != 2 || !is_of_block) continue;
            const at::ScalarType dtype = weight.scalar_type();
            at::Tensor first = at::empty_like(weight, dtype == at::kBFloat16 ? at::kFloat : dtype);
            // As the other run, from numbers that bf16 has not rounded.
            model::initialise(first, shard.layout.whole_box(shard.rank), shard.layout.whole_shape(),
                              model::initialiser_of(model_of(config), shard.name),
                              config.train.seed, shard.name);
            at::Tensor(weight).copy_(decode(encode(first, format), dtype));
          }
          fill_adapters(model);
        };
        expect_same_bits(actual, run(config, 1, rounded));
      }
    }
  }
}

TEST_F(FrozenWeights, EveryAxisIsTheOneRank) {
  prepare = fill_adapters;
  for (const AxisChoice& choice : axis_choices()) {
    for (const auto& [format, kind] : {std::pair("nf4", "llama"),
                                       {"nf4", "gpt2"},
                                       {"nf4", "latent"},
                                       {"nf4", "experts"},
                                       {"int8", "llama"},
                                       {"bf16", "llama"}}) {
      // Others are on the axes that move weights.
      const std::string first = choice.overrides.front().first;
      const bool moves_weights = first == "parallel.zero" || first == "parallel.tensor";
      if (!moves_weights && (std::string(kind) != "llama" || std::string(format) != "nf4"))
        continue;
      auto overrides = choice.overrides;
      const auto model = frozen_model(format, kind);
      overrides.insert(overrides.end(), model.begin(), model.end());
      check(overrides, choice.ranks);
      if (std::string(kind) != "llama") continue;
      overrides.emplace_back("lora.targets", "*.q_proj, *.down_proj");
      overrides.emplace_back("lora.also_train", "*norm*, *.v_proj.weight");
      overrides.emplace_back("lora.dora", "true");
      overrides.emplace_back("train.recompute", "full");
      check(overrides, choice.ranks);
    }
  }
}

TEST_F(FrozenWeights, DataPipelineAndZeroAreTheOneRanksPipelineBitForBit) {
  for (const std::string format : {"nf4", "bf16"}) {
    auto base = frozen_model(format, "llama");
    base.emplace_back("train.precision", "fp32");
    base.emplace_back("parallel.data", "2");
    base.emplace_back("parallel.gradient_order", "microbatch-first");
    const StepOutcome expected = run(config_of(base), 2, fill_adapters);
    for (const std::string schedule : {"1f1b", "zero-bubble"}) {
      for (const int zero : {0, 1, 2, 3}) {
        auto layout = base;
        layout.emplace_back("parallel.pipeline", "2");
        layout.emplace_back("parallel.schedule", schedule);
        layout.emplace_back("parallel.zero", std::to_string(zero));
        if (zero == 3) layout.emplace_back("offload.parameters", "disk");
        SCOPED_TRACE(describe(layout));
        expect_same_bits(run(config_of(layout), 4, fill_adapters), expected);
      }
    }
  }
}

TEST_F(FrozenWeights, WhatCannotBeKeptSoIsRefusedByALineThatSaysWhatToDo) {
  const auto refusal = [](const std::vector<Override>& overrides, int ranks) -> std::string {
    try {
      RunConfig config = config_of(overrides);
      resolve(config, ranks);
      check_layout(config);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  auto model = frozen_model("nf4", "llama");
  EXPECT_EQ(refusal(model, 1), "");
  auto narrow = model;
  narrow.emplace_back("model.ffn_width", "100");
  EXPECT_EQ(refusal(narrow, 1),
            "lora.base is nf4, and model.layers.0.mlp.down_proj.weight has 100 columns; expected a "
            "multiple of the 64 numbers that share a scale; set lora.base to \"bf16\"");
  auto cut = model;
  cut.emplace_back("model.ffn_width", "320");
  cut.emplace_back("parallel.tensor", "2");
  EXPECT_EQ(refusal(cut, 2),
            "lora.base is nf4 and parallel.tensor 2, between whose ranks "
            "model.layers.0.mlp.down_proj.weight is cut at column 160, among the 64 numbers that "
            "share a scale; lower parallel.tensor, or set lora.base to \"bf16\"");
  EXPECT_EQ(refusal({{"lora.base", "nf4"}}, 1),
            "lora.base is set and lora.rank 0, so that there are no adapters; set the rank, or "
            "leave it out");
}

}  // namespace
}  // namespace trireme::train
