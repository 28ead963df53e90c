// Knowledge distillation at every layout against one rank with the same weights, and one rank
// against the paper's formula in plain operators of libtorch. The teacher has the values of a new
// run, so that no test reads a folder.
#include <map>
#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/parity/axis_choices.h"
#include "tests/parity/layout_step.h"
#include "tests/parity/random_layout.h"
#include "trireme/model/model.h"

namespace trireme::train {
namespace {

const Overrides kDistillation = {{"objective.name", "distill"},
                                 {"objective.teacher", "unread"},
                                 {"objective.temperature", "0.5"},
                                 {"objective.weight", "0.7"}};

// Another family, width and depth; random weights large enough that its predictions differ.
model::ModelConfig some_teacher(const std::string& family) {
  const RunConfig config = config_of({{"model.family", family},
                                      {"model.layers", "5"},
                                      {"model.width", "36"},
                                      {"model.kv_heads", "6"},
                                      {"model.sequence_length", "16"},
                                      {"model.tied_embedding", "true"},
                                      {"model.logits_softcap", family == "llama" ? "2" : "0"},
                                      {"model.experts", family == "mixtral" ? "5" : "0"}});
  return model_of(config);
}

void give_teacher(RunConfig& config, const model::ModelConfig& teacher) {
  tasks::language_of(config).teacher =
      std::make_shared<const tasks::Teacher>(tasks::Teacher{.model = teacher});
}

RunConfig taught(const Overrides& overrides, const std::string& family = "gpt2") {
  RunConfig config = config_of(overrides);
  give_teacher(config, some_teacher(family));
  return config;
}

class DistillationTest : public LayoutsTest {
 protected:
  void teach_with(const std::string& family) {
    configure = [family](RunConfig& config) { give_teacher(config, some_teacher(family)); };
  }
};

at::Tensor capped_logits(model::LanguageModel& model, const dataset::Batch& batch) {
  return model.logits(batch["tokens"]).flatten(0, 1);
}

// (1 - w) CE + w T^2 KL(teacher || student) by autograd.
TEST_F(DistillationTest, OneRankIsThePapersFormula) {
  for (const char* family : {"llama", "gemma"}) {
    const RunConfig config =
        taught(joined(kDistillation, {{"model.family", family}, {"model.tied_embedding", "true"}}),
               "llama");
    const StepOutcome actual = run(config, 1);
    const auto student = model::make_model(model_of(config), config.train.seed, at::kDouble);
    const auto teacher = model::make_model(some_teacher("llama"), config.train.seed, at::kDouble);
    const dataset::Batch batch = batch_of(config, 0, config.train.global_batch);
    const at::Tensor targets_S = batch["targets"].flatten();
    const at::Tensor learnt = targets_S.ne(model::kIgnoredTarget).nonzero().squeeze(1);
    ASSERT_LT(learnt.numel(), targets_S.numel());
    const at::Tensor z = capped_logits(*student, batch).index_select(0, learnt);
    const at::Tensor y = capped_logits(*teacher, batch).index_select(0, learnt).detach();
    const double T = 0.5, w = 0.7;
    const at::Tensor log_p = at::log_softmax(y / T, 1), log_q = at::log_softmax(z / T, 1);
    const at::Tensor kl = (log_p.exp() * (log_p - log_q)).sum(1).mean();
    const at::Tensor ce = at::cross_entropy_loss(z, targets_S.index_select(0, learnt));
    const at::Tensor loss = (1 - w) * ce + w * T * T * kl;
    loss.backward();
    EXPECT_GT(kl.item<double>(), 1e-3);
    EXPECT_NEAR(actual.loss, loss.item<double>(), 1e-12);
    EXPECT_NEAR(actual.evaluated, loss.item<double>(), 1e-12);
    const auto parameters = student->module().named_parameters();
    ASSERT_EQ(actual.gradients.size(), parameters.size());
    for (const auto& item : parameters) {
      harness::assert_close(actual.gradients.at(item.key()), item.value().grad(), 1e-11, 1e-13,
                            item.key());
    }
  }
}

TEST_F(DistillationTest, EveryAxisIsTheOneRank) {
  for (const AxisChoice& choice : axis_choices()) {
    const auto with = [&](const Overrides& student) {
      return joined(joined(choice.overrides, kDistillation), student);
    };
    teach_with("gpt2");
    check(with({{"model.family", "gemma"}, {"model.tied_embedding", "true"}}), choice.ranks);
    teach_with("llama");
    check(with({{"model.family", "mixtral"}, {"model.experts", "5"}}), choice.ranks);
    teach_with("mixtral");
    check(with({{"lora.rank", "3"}}), choice.ranks);
  }
}

TEST_F(DistillationTest, PairsOfAxesAndUnevenBatchesAreTheOneRank) {
  const auto with = [](const Overrides& layout) { return joined(layout, kDistillation); };
  teach_with("llama");
  check(with({{"parallel.context", "2"}, {"parallel.tensor", "2"}}), 4);
  check(with({{"parallel.tensor", "2"},
              {"parallel.pipeline", "2"},
              {"parallel.sequence_parallel", "true"},
              {"train.recompute", "full"}}),
        4);
  check(with({{"parallel.zero", "3"}, {"parallel.data", "2"}, {"parallel.context", "2"}}), 4);
  check(with({{"parallel.zero", "3"}, {"parallel.data", "2"}, {"parallel.pipeline", "2"}}), 4);
  check(
      with({{"parallel.data", "3"}, {"train.micro_batch", "2"}, {"train.uneven_batches", "true"}}),
      3);
  check(with({{"parallel.data", "2"}, {"train.freeze", "*embed*,*layers.0*"}}), 2);
  check(with({{"parallel.data", "2"}}), 2, 1e-10, {3, 1});
  const Overrides experts = {{"model.family", "mixtral"}, {"model.experts", "4"}};
  for (const char* family : {"llama", "mixtral"}) {
    teach_with(family);
    check(joined(with({{"parallel.data", "2"}, {"parallel.expert", "2"}}), experts), 2);
    check(joined(with({{"parallel.context", "2"}, {"parallel.expert", "2"}}), experts), 2);
  }
}

TEST_F(DistillationTest, DataPipelineAndZeroAreTheSameBits) {
  const auto base = joined(kDistillation, {{"train.precision", "fp32"},
                                           {"parallel.gradient_order", "microbatch-first"},
                                           {"parallel.data", "2"}});
  const StepOutcome expected = run(taught(base), 2);
  for (const char* zero : {"0", "1", "2", "3"}) {
    for (const char* pipeline : {"1", "2"}) {
      const auto layout = joined(base, {{"parallel.zero", zero}, {"parallel.pipeline", pipeline}});
      SCOPED_TRACE(describe(layout));
      expect_same_bits(run(taught(layout), pipeline[0] == '1' ? 2 : 4), expected);
    }
  }
}

TEST_F(DistillationTest, ReproducibleRunsAreTheSameBitsOnAnyNumberOfDataRanks) {
  const auto base =
      joined(kDistillation, {{"train.precision", "fp32"}, {"train.reproducible", "true"}});
  const StepOutcome expected = run(taught(base), 1);
  for (const int data : {2, 4}) {
    const auto layout = joined(base, {{"parallel.data", std::to_string(data)}});
    expect_same_bits(run(taught(layout), data), expected);
  }
}

TEST_F(DistillationTest, WithWeightZeroItIsTheRunWithoutATeacherToTheBit) {
  const Overrides base = {{"train.precision", "fp32"}, {"parallel.tensor", "2"}};
  const StepOutcome found =
      run(taught(joined(base, joined(kDistillation, {{"objective.weight", "0"}}))), 2);
  const StepOutcome expected = run(config_of(base), 2);
  expect_same_bits(found, expected);
  EXPECT_EQ(found.evaluated, expected.evaluated);
}

TEST_F(DistillationTest, AStudentThatIsItsTeacherLearnsNothingFromIt) {
  RunConfig config = config_of(joined(kDistillation, {{"objective.weight", "1"},
                                                      {"train.precision", "fp32"},
                                                      {"parallel.tensor", "2"},
                                                      {"parallel.pipeline", "2"}}));
  give_teacher(config, model_of(config));
  const StepOutcome found = run(config, 4);
  EXPECT_EQ(found.loss, 0);
  EXPECT_EQ(found.norm, 0);
}

TEST_F(DistillationTest, ATeacherThatTheLayoutCannotDivideIsOneLine) {
  RunConfig config = taught(joined(kDistillation, {{"parallel.pipeline", "4"}}));
  model::ModelConfig shallow = some_teacher("gpt2");
  shallow.layers = 3;
  give_teacher(config, shallow);
  resolve(config, 4);
  try {
    check_layout(config);
    FAIL() << "expected an error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("objective.teacher: the model has 3 layers"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme::train
