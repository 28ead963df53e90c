// Classification of texts at every layout against one rank. The head reads the first token of each
// text, which one rank of the context axis has, and under sequence parallelism one of the tensor
// axis.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parity/axis_choices.h"
#include "tests/parity/layout_step.h"

namespace trireme::train {
namespace {

std::vector<Override> classifier_with(const std::vector<Override>& others) {
  std::vector<Override> all = {{"model.family", "bert"},
                               {"model.kv_heads", "6"},
                               {"model.classes", "5"},
                               {"objective.name", "classify"}};
  for (const Override& one : others) {
    if (one.first != "data.separate_documents") all.push_back(one);  // texts are apart already
  }
  return all;
}

class ClassificationLayouts : public LayoutsTest {};

TEST_F(ClassificationLayouts, EveryAxisIsTheOneRank) {
  for (const AxisChoice& choice : axis_choices()) {
    for (const auto& [key, value] : {std::pair("model.dropout", "0"),
                                     {"model.dropout", "0.1"},
                                     {"train.micro_batch", "2"},
                                     {"train.recompute", "full"}}) {
      auto overrides = classifier_with(choice.overrides);
      overrides.emplace_back(key, value);
      check(overrides, choice.ranks);
    }
  }
}

TEST_F(ClassificationLayouts, EveryAxisWithAdaptersIsTheOneRank) {
  prepare = fill_adapters;
  for (const AxisChoice& choice : axis_choices()) {
    auto overrides = classifier_with(choice.overrides);
    overrides.emplace_back("lora.rank", "3");
    overrides.emplace_back("train.recompute", "selective");
    check(overrides, choice.ranks);
  }
}

TEST_F(ClassificationLayouts, AdaptersLeaveTheHeadTrained) {
  const StepOutcome outcome = run(config_of(classifier_with({{"lora.rank", "3"}})), 1);
  for (const char* name : {"bert.pooler.dense.weight", "bert.pooler.dense.bias",
                           "classifier.weight", "classifier.bias"}) {
    EXPECT_TRUE(outcome.gradients.contains(name)) << name;
  }
  EXPECT_FALSE(outcome.gradients.contains("bert.embeddings.word_embeddings.weight"));
}

TEST_F(ClassificationLayouts, PairsOfAxesAndUnevenBatchesAreTheOneRank) {
  for (const AxisChoice& pair : axis_pairs()) {
    for (const char* dropout : {"0", "0.1"}) {
      auto overrides = classifier_with(pair.overrides);
      overrides.emplace_back("train.micro_batch", "2");
      overrides.emplace_back("model.dropout", dropout);
      check(overrides, pair.ranks);
    }
  }
  check(classifier_with({{"parallel.tensor", "2"},
                         {"parallel.sequence_parallel", "true"},
                         {"parallel.context", "2"},
                         {"train.micro_batch", "4"},
                         {"model.dropout", "0.1"}}),
        4);
  check(classifier_with(
            {{"parallel.data", "3"}, {"train.micro_batch", "2"}, {"train.uneven_batches", "true"}}),
        3);
}

TEST_F(ClassificationLayouts, DataPipelineAndZeroAreTheSameBits) {
  for (const char* precision : {"fp32", "bf16"}) {
    const auto base = classifier_with({{"train.precision", precision},
                                       {"parallel.gradient_order", "microbatch-first"},
                                       {"model.dropout", "0.1"},
                                       {"parallel.data", "2"}});
    const StepOutcome expected = run(config_of(base), 2);
    for (const char* pipeline : {"1", "2"}) {
      for (const char* zero : {"1", "2", "3"}) {
        auto layout = base;
        layout.emplace_back("parallel.pipeline", pipeline);
        layout.emplace_back("parallel.zero", zero);
        SCOPED_TRACE(describe(layout));
        expect_same_bits(run(config_of(layout), pipeline[0] == '1' ? 2 : 4), expected);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::train
