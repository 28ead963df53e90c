// BERT at every layout against one rank. Its attention reads in both directions, and its head has
// a bias that the tensor axis splits and the pipeline's last stage has without the embedding.
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parity/axis_choices.h"
#include "tests/parity/layout_step.h"

namespace trireme::train {
namespace {

std::vector<Override> bert_with(const std::vector<Override>& others) {
  std::vector<Override> all = {
      {"model.family", "bert"}, {"model.kv_heads", "6"}, {"data.masked_share", "0.15"}};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

class BertLayouts : public LayoutsTest {};

TEST_F(BertLayouts, EveryAxisIsTheOneRank) {
  for (const AxisChoice& choice : axis_choices()) {
    for (const auto& [key, value] : {std::pair("model.dropout", "0"),
                                     {"model.dropout", "0.1"},
                                     {"data.separate_documents", "true"},
                                     {"train.recompute", "full"}}) {
      auto overrides = bert_with(choice.overrides);
      overrides.emplace_back(key, value);
      check(overrides, choice.ranks);
    }
  }
}

TEST_F(BertLayouts, EveryAxisWithAdaptersIsTheOneRank) {
  prepare = fill_adapters;
  for (const AxisChoice& choice : axis_choices()) {
    auto overrides = bert_with(choice.overrides);
    overrides.emplace_back("lora.rank", "3");
    check(overrides, choice.ranks);
    overrides.emplace_back("lora.targets", "*.query, *.value, *.output.dense");
    overrides.emplace_back("lora.also_train", "*LayerNorm*, cls.*");
    overrides.emplace_back("train.recompute", "selective");
    check(overrides, choice.ranks);
  }
}

TEST_F(BertLayouts, PairsOfAxesAreTheOneRank) {
  for (const AxisChoice& pair : axis_pairs()) {
    for (const char* documents : {"false", "true"}) {
      auto overrides = bert_with(pair.overrides);
      overrides.emplace_back("data.separate_documents", documents);
      check(overrides, pair.ranks);
    }
  }
}

TEST_F(BertLayouts, DataPipelineAndZeroAreTheOneRanksPipelineBitForBit) {
  for (const char* precision : {"fp32", "bf16"}) {
    const auto base = bert_with({{"train.precision", precision},
                                 {"parallel.gradient_order", "microbatch-first"},
                                 {"model.dropout", "0.1"},
                                 {"parallel.data", "2"}});
    const StepOutcome expected = run(config_of(base), 2);
    for (const std::string schedule : {"1f1b", "interleaved", "zero-bubble-v"}) {
      for (const char* zero : {"0", "2", "3"}) {
        auto layout = base;
        layout.emplace_back("parallel.pipeline", "2");
        layout.emplace_back("parallel.schedule", schedule);
        layout.emplace_back("parallel.zero", zero);
        SCOPED_TRACE(describe(layout));
        expect_same_bits(run(config_of(layout), 4), expected);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::train
