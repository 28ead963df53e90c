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
#include "tests/parity/given_teacher.h"
#include "tests/parity/layout_step.h"
#include "tests/parity/random_layout.h"
#include "trireme/model/model.h"
#include "trireme/tasks/language/outputs/outputs_writer.h"
#include "trireme/tasks/language/outputs/teacher_outputs.h"

namespace trireme::train {
namespace {

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

// What the teacher of `config` says of the step's samples, computed at the config's layout.
// [samples, T, 2k + 1] fp64, see LanguageStage.
at::Tensor recorded(RunConfig config, int num_ranks, int64_t k) {
  tasks::language_of(config).recording = {
      .top_k = k, .temperature = tasks::language_of(config).objective.temperature};
  resolve(config, num_ranks);
  at::Tensor whole;
  harness::run_ranks(num_ranks, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, mesh_axes(config.parallel));
    FrozenModel teacher(teacher_config(config).value(), mesh);
    const auto batches =
        batches_of(config, mesh.coordinate("data") * mesh.size("shard") + mesh.coordinate("shard"));
    const std::vector<at::Tensor> found = teacher.model().scores(batches);
    const at::Tensor rows = at::zeros(
        {config.train.global_batch, model_of(config).sequence_length, 2 * k + 1}, at::kDouble);
    for (size_t i = 0; i < found.size() && mesh.coordinate("tensor") == 0; ++i) {
      rows.narrow(0,
                  std::min(batches[i].first_sample, config.train.global_batch - found[i].size(0)),
                  found[i].size(0))
          .copy_(found[i]);
    }
    world.all_reduce(rows)->wait();
    if (world.rank() == 0) whole = rows;
  });
  return whole;
}

// Trains from a file of the outputs of one rank's teacher, in place of the teacher.
class CachedOutputs : public LayoutsTest {
 protected:
  static RunConfig config_with(const Overrides& overrides, const std::string& family = "llama") {
    return taught(joined(overrides, kDistillation), family);
  }

  // The file of `rows`.
  void keep(const RunConfig& config, const at::Tensor& rows) {
    const int64_t k = (rows.size(2) - 1) / 2;
    const tasks::OutputsOrigin origin{.vocab_size = model_of(config).vocab_size,
                                      .sequence_length = model_of(config).sequence_length};
    const auto path = folder_.path() / "outputs";
    tasks::OutputsWriter writer(
        path, origin, {.top_k = k, .num_training = rows.size(0), .dtype = config.train.precision});
    writer.write(tasks::OutputsOf::kTraining, 0,
                 {rows.narrow(2, 0, k).to(at::kLong), rows.narrow(2, k, k), rows.select(2, 2 * k)});
    writer.finish();
    outputs_ = std::make_shared<const tasks::TeacherOutputs>(path);
  }

  StepOutcome run_cached(RunConfig config, int num_ranks) const {
    tasks::language_of(config).teacher = nullptr;
    tasks::language_of(config).outputs = outputs_;
    return run(config, num_ranks, {}, [this](const RunConfig& own, int64_t data_rank) {
      auto batches = batches_of(own, data_rank);
      for (dataset::Batch& batch : batches) add_outputs(batch);
      return batches;
    });
  }

 private:
  void add_outputs(dataset::Batch& batch) const {
    std::vector<at::Tensor> tokens, log_p, log_rest;
    // An empty microbatch has the shapes of a sample.
    for (int64_t i = 0; i < std::max<int64_t>(1, batch.size()); ++i) {
      const int64_t index = batch.size() == 0 ? 0 : batch.first_sample + i;
      const tasks::SampleOutputs sample = outputs_->read(tasks::OutputsOf::kTraining, index);
      tokens.push_back(sample.tokens_NTk);
      log_p.push_back(sample.log_p_NTk);
      log_rest.push_back(sample.log_rest_NT);
    }
    const auto stacked = [&](const std::vector<at::Tensor>& all) {
      return at::stack(all).narrow(0, 0, batch.size());
    };
    batch.tensors.emplace_back(tasks::kTeacherTokens, stacked(tokens));
    batch.tensors.emplace_back(tasks::kTeacherLogP, stacked(log_p));
    batch.tensors.emplace_back(tasks::kTeacherLogRest, stacked(log_rest));
  }

  harness::TemporaryFolder folder_;
  std::shared_ptr<const tasks::TeacherOutputs> outputs_;
};

// fp32 keeps log-probabilities of up to 20 to 1e-6 of a nat.
TEST_F(CachedOutputs, OfAllTokensAreTheTeacherInPlace) {
  for (const auto& [precision, tolerance] : {std::pair{"fp64", 1e-12}, {"fp32", 2e-5}}) {
    const RunConfig config = config_with({{"train.precision", precision}});
    keep(config, recorded(config, 1, model_of(config).vocab_size));
    const StepOutcome expected = run(config, 1);
    expect_close(run_cached(config, 1), expected, tolerance);
    for (const Overrides& layout :
         std::vector<Overrides>{{{"parallel.tensor", "3"}}, {{"parallel.context", "3"}}}) {
      const RunConfig split = config_with(joined(layout, {{"train.precision", precision}}));
      expect_close(run_cached(split, 3), expected, std::max(tolerance, 1e-10));
    }
  }
}

// Of tokens and of the loss from them: teachers of other families and depths than the student.
TEST_F(CachedOutputs, OnEveryAxisAreTheOneRank) {
  constexpr int64_t k = 5;
  std::vector<AxisChoice> choices = axis_choices();
  choices.push_back(
      {"tensor and context", {{"parallel.context", "2"}, {"parallel.tensor", "2"}}, 4});
  choices.push_back(
      {"uneven",
       {{"parallel.data", "3"}, {"train.micro_batch", "2"}, {"train.uneven_batches", "true"}},
       3});
  choices.push_back({"experts", {{"parallel.data", "2"}, {"parallel.expert", "2"}}, 2});
  for (const AxisChoice& choice : choices) {
    SCOPED_TRACE(choice.name);
    const bool has_experts = std::string(choice.name) == "experts";
    const RunConfig config = config_with(
        joined(choice.overrides, {{"model.family", has_experts ? "mixtral" : "gemma"},
                                  {"model.experts", has_experts ? "4" : "0"},
                                  {"model.tied_embedding", has_experts ? "false" : "true"}}),
        has_experts ? "mixtral" : "llama");
    const RunConfig alone = on_one_rank(config);
    const at::Tensor expected = recorded(alone, 1, k);
    const at::Tensor found = recorded(config, choice.ranks, k);
    harness::assert_same_bits(found.narrow(2, 0, k), expected.narrow(2, 0, k), "tokens");
    harness::assert_close(found, expected, 1e-10, 1e-12, "log-probabilities");
    keep(config, expected);
    expect_close(run_cached(config, choice.ranks), run_cached(alone, 1), 1e-10);
  }
}

TEST_F(CachedOutputs, DataPipelineAndZeroAreTheSameBits) {
  const Overrides base = {{"train.precision", "fp32"},
                          {"parallel.gradient_order", "microbatch-first"},
                          {"parallel.data", "2"}};
  keep(config_with(base), recorded(config_with(base), 2, 4));
  const StepOutcome expected = run_cached(config_with(base), 2);
  for (const char* zero : {"0", "3"}) {
    for (const char* pipeline : {"1", "2"}) {
      const auto layout = joined(base, {{"parallel.zero", zero}, {"parallel.pipeline", pipeline}});
      SCOPED_TRACE(describe(layout));
      expect_same_bits(run_cached(config_with(layout), pipeline[0] == '1' ? 2 : 4), expected);
    }
  }
}

}  // namespace
}  // namespace trireme::train
