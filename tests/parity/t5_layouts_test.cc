// T5 at every layout against one rank: stages that end in either half or between them, biases that
// all blocks of a half share, an embedding that three places use, and attention across halves whose
// context ranks have different numbers of tokens.
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parity/axis_choices.h"
#include "tests/parity/layout_step.h"

namespace trireme::train {
namespace {

// Eleven targets.
std::vector<Override> t5_with(const std::vector<Override>& others) {
  std::vector<Override> all = {{"model.family", "t5"},
                               {"model.kv_heads", "6"},
                               {"model.head_width", "5"},
                               {"model.decoder_layers", "3"},
                               {"model.tied_embedding", "true"},
                               {"model.relative_buckets", "8"},
                               {"model.relative_distance", "12"},
                               {"model.target_length", "11"},
                               {"data.masked_share", "0.4"},
                               {"data.span_length", "1"},
                               {"data.sentinel_token", "36"}};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

const std::vector<Override> kSeparateHead = {{"model.tied_embedding", "false"},
                                             {"model.feed_forward", "gated-gelu"}};

// Its spans are hidden in a stream of tokens without documents.
std::vector<AxisChoice> choices_of_t5() {
  std::vector<AxisChoice> choices = axis_choices();
  std::erase_if(choices, [](const AxisChoice& choice) {
    return std::string_view(choice.name) == "documents";
  });
  return choices;
}

class T5Layouts : public LayoutsTest {};

TEST_F(T5Layouts, EveryAxisIsTheOneRank) {
  const std::vector<std::vector<Override>> variants = {
      {},
      kSeparateHead,
      {{"model.dropout", "0.1"}},
      {{"train.recompute", "full"}},
      {{"train.recompute", "selective"},
       {"train.recompute_modules", "attention,feed_forward"},
       {"offload.activations", "host"}},
      {{"train.recompute", "selective"}}};
  for (const AxisChoice& choice : choices_of_t5()) {
    for (const std::vector<Override>& variant : variants) {
      auto overrides = t5_with(choice.overrides);
      overrides.insert(overrides.end(), variant.begin(), variant.end());
      check(overrides, choice.ranks);
    }
  }
}

TEST_F(T5Layouts, EveryAxisWithAdaptersIsTheOneRank) {
  prepare = fill_adapters;
  for (const AxisChoice& choice : choices_of_t5()) {
    auto overrides = t5_with(choice.overrides);
    overrides.emplace_back("lora.rank", "3");
    overrides.emplace_back("lora.targets", "*.q, *.v");
    overrides.emplace_back("lora.also_train", "*layer_norm*, *relative_attention_bias*");
    check(overrides, choice.ranks);
  }
}

TEST_F(T5Layouts, PairsOfAxesAreTheOneRank) {
  std::vector<AxisChoice> pairs = axis_pairs();
  pairs.push_back({"pipeline of four", {{"parallel.pipeline", "4"}}, 4});
  for (const AxisChoice& pair : pairs) {
    check(t5_with(pair.overrides), pair.ranks);
    auto separate = t5_with(pair.overrides);
    separate.insert(separate.end(), kSeparateHead.begin(), kSeparateHead.end());
    check(separate, pair.ranks);
  }
}

// Every place of the cuts: seven blocks in up to seven stages.
TEST_F(T5Layouts, DataPipelineAndZeroAreTheOneRanksPipelineBitForBit) {
  for (const char* precision : {"fp32", "bf16"}) {
    const auto base = t5_with({{"train.precision", precision},
                               {"parallel.gradient_order", "microbatch-first"},
                               {"model.dropout", "0.1"}});
    const StepOutcome expected = run(config_of(base), 1);
    for (const auto& [stages, schedule] : {std::pair("2", "1f1b"),
                                           {"3", "gpipe"},
                                           {"7", "1f1b"},
                                           {"2", "interleaved"},
                                           {"2", "zero-bubble-v"}}) {
      auto layout = base;
      layout.emplace_back("parallel.pipeline", stages);
      layout.emplace_back("parallel.schedule", schedule);
      SCOPED_TRACE(describe(layout));
      expect_same_bits(run(config_of(layout), std::stoi(stages)), expected);
    }
    auto base_of_two = base;
    base_of_two.emplace_back("parallel.data", "2");
    const StepOutcome of_two = run(config_of(base_of_two), 2);
    for (const char* zero : {"0", "2", "3"}) {
      auto layout = base_of_two;
      layout.emplace_back("parallel.pipeline", "2");
      layout.emplace_back("parallel.zero", zero);
      SCOPED_TRACE(describe(layout));
      expect_same_bits(run(config_of(layout), 4), of_two);
    }
  }
}

}  // namespace
}  // namespace trireme::train
