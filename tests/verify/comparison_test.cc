#include "trireme/verify/comparison.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/verify/recorded.h"

namespace trireme::verify {
namespace {

const std::vector<std::string> kParameters = {"embed.weight", "layers.0.weight", "head.weight"};
const std::string kState = "optimizer.momentum.layers.0.weight";

// Two steps of A and B in both precisions, which differ by rounding: by the roundoff of the dtype
// times `grown`.
class ComparisonTest : public testing::Test {
 protected:
  static RecordedStep step_of(at::ScalarType dtype, double off) {
    RecordedStep step{.loss = 3 + off, .norm = 5 - off};
    for (const std::string& name : kParameters) {
      at::Tensor values = at::linspace(-1, 1, 12, at::kDouble).view({3, 4});
      values[2][1] += off;
      step.gradients[name] = values.to(dtype);
      step.checkpoint[name] = (values * 0.1).to(dtype);
    }
    step.checkpoint[kState] = step.gradients["layers.0.weight"] * 2;
    return step;
  }

  ComparisonTest() {
    for (const char* precision : {"32", "64"}) {
      const bool is_low = std::string(precision) == "32";
      const double roundoff = is_low ? 0x1p-24 : 0x1p-53;
      const at::ScalarType dtype = is_low ? at::kFloat : at::kDouble;
      for (const char* side : {"a", "b"}) {
        const double off = *side == 'b' ? 8 * roundoff : 0;
        steps_[concat(side, precision)] = {step_of(dtype, off), step_of(dtype, 16 * off)};
      }
    }
  }

  // The same mistake in both precisions of B.
  void change_b(const std::function<void(std::vector<RecordedStep>& steps)>& change) {
    change(steps_["b32"]);
    change(steps_["b64"]);
  }

  Comparison compared() {
    for (const auto& [name, steps] : steps_) write_run(folder_.path() / name, kParameters, steps);
    const RecordedRun a32(folder_.path() / "a32"), b32(folder_.path() / "b32");
    const RecordedRun a64(folder_.path() / "a64"), b64(folder_.path() / "b64");
    return compare({a32, b32}, {a64, b64});
  }

  harness::TemporaryFolder folder_;
  std::map<std::string, std::vector<RecordedStep>> steps_;
};

TEST_F(ComparisonTest, RoundingIsFoundInEveryProbe) {
  const Comparison found = compared();
  EXPECT_EQ(found.finding(), Finding::kRounding);
  EXPECT_EQ(found.num_steps, 2);
  // A loss, three gradients, a norm, a state and three weights.
  EXPECT_EQ(found.num_probes, 2 * 9);
  EXPECT_EQ(found.probes.size(), 2U * 9);
  EXPECT_GT(found.largest_rounding, 0x1p-53);
  EXPECT_LT(found.largest_rounding, 1e-12);
  EXPECT_TRUE(found.is_proved);
}

TEST_F(ComparisonTest, TheSameRunsHaveNoProbeThatDiffers) {
  steps_["b32"] = steps_["a32"];
  steps_["b64"] = steps_["a64"];
  const Comparison found = compared();
  EXPECT_EQ(found.finding(), Finding::kSame);
  EXPECT_TRUE(found.probes.empty());
  EXPECT_EQ(found.first(), nullptr);
}

TEST_F(ComparisonTest, AMistakeIsNamedWhereItIsFirst) {
  change_b([](std::vector<RecordedStep>& steps) {
    steps[1].gradients["layers.0.weight"][1].mul_(0.5);
    steps[1].gradients["embed.weight"].mul_(0.5);
    steps[1].checkpoint["embed.weight"].add_(1);
  });
  const Comparison found = compared();
  ASSERT_EQ(found.finding(), Finding::kBug);
  const Probe& first = *found.first();
  EXPECT_EQ(first.step, 2);
  EXPECT_EQ(first.kind, ProbeKind::kGradient);
  EXPECT_EQ(first.name, "layers.0.weight");  // backward comes from the head
  ASSERT_TRUE(first.first);
  EXPECT_EQ(first.first->index, (std::vector<int64_t>{1, 0}));
}

TEST_F(ComparisonTest, AWrongNumberComesBeforeTheGradients) {
  change_b([](std::vector<RecordedStep>& steps) {
    steps[0].loss = 4;
    steps[0].gradients["head.weight"].mul_(2);
  });
  const Comparison found = compared();
  EXPECT_EQ(found.first()->kind, ProbeKind::kLoss);
  EXPECT_EQ(found.first()->name, "");
}

TEST_F(ComparisonTest, AStateIsNamedAfterTheGradientsAndBeforeTheWeights) {
  change_b([](std::vector<RecordedStep>& steps) {
    steps[0].checkpoint["embed.weight"].mul_(2);
    steps[0].checkpoint[kState].mul_(2);
  });
  const Comparison found = compared();
  EXPECT_EQ(found.first()->kind, ProbeKind::kState);
  EXPECT_EQ(found.first()->name, kState);
}

TEST_F(ComparisonTest, ATensorThatOneSideLacksIsABug) {
  change_b([](std::vector<RecordedStep>& steps) { steps[0].gradients.erase("head.weight"); });
  const Comparison found = compared();
  EXPECT_EQ(found.finding(), Finding::kBug);
  EXPECT_EQ(found.first()->name, "head.weight");
  EXPECT_EQ(found.first()->note, "only A has it");
}

TEST_F(ComparisonTest, AnotherShapeIsABug) {
  change_b([](std::vector<RecordedStep>& steps) {
    at::Tensor& gradient = steps[0].gradients["head.weight"];
    gradient = gradient.reshape({4, 3}).clone();
  });
  EXPECT_EQ(compared().first()->note, "shape or dtype differs");
}

// They do not follow the run's precision, so nothing can be said.
TEST_F(ComparisonTest, StatesOfFewerBitsAreUndecided) {
  for (auto& [name, steps] : steps_) {
    for (RecordedStep& step : steps)
      step.checkpoint[kState] = step.checkpoint[kState].to(at::kBFloat16);
  }
  change_b([](std::vector<RecordedStep>& steps) { steps[0].checkpoint[kState].mul_(1.5); });
  const Comparison found = compared();
  EXPECT_EQ(found.finding(), Finding::kUndecided);
  EXPECT_EQ(found.first()->name, kState);
}

TEST_F(ComparisonTest, AValueThatIsNotFiniteOnOneSideIsABug) {
  change_b([](std::vector<RecordedStep>& steps) {
    steps[1].gradients["embed.weight"][0][0] = std::numeric_limits<double>::quiet_NaN();
  });
  const Comparison found = compared();
  EXPECT_EQ(found.finding(), Finding::kBug);
  EXPECT_EQ(found.first()->name, "embed.weight");
}

// Three activations of a step with a router, in the order of forward.
class ActivationsTest : public ComparisonTest {
 protected:
  ActivationsTest() {
    for (auto& [name, steps] : steps_) {
      const bool is_low = name.ends_with("32");
      const at::ScalarType dtype = is_low ? at::kFloat : at::kDouble;
      const double off = name.starts_with('b') ? 8 * (is_low ? 0x1p-24 : 0x1p-53) : 0;
      for (RecordedStep& step : steps) {
        step.order = {"embedding", "layers.0.router", "layers.0"};
        for (const std::string& probe : step.order) {
          at::Tensor values = at::linspace(-1, 1, 12, at::kDouble).view({6, 2});
          values[1][1] += off;
          step.activations[probe] = values.to(dtype);
          step.activations[probe + "@gradient"] = (values * 3).to(dtype);
        }
        step.activations["layers.0.router@choices"] = at::arange(6).view({6, 1});
        // In fp64 in every run.
        step.activations["loss"] = at::full({6, 1}, 2 + off, at::kDouble);
        step.order.emplace_back("loss");
      }
    }
  }
};

TEST_F(ActivationsTest, RoundingIsFoundInActivationsToo) {
  const Comparison found = compared();
  EXPECT_EQ(found.finding(), Finding::kRounding);
  // Those of the records without activations, three with gradients, the choices and the loss.
  EXPECT_EQ(found.num_probes, 2 * (9 + 6 + 2));
  EXPECT_EQ(found.probes.size() + found.same.size(), 2U * (9 + 6 + 2));
  ASSERT_EQ(found.same.size(), 2U);
  EXPECT_EQ(found.same[0].name, "layers.0.router@choices");
  EXPECT_EQ(found.left_out, std::vector<std::string>{"late"});
}

// Such as those of learners, whose ranks read samples of their own.
TEST_F(ActivationsTest, WhatOneRunHasNotWholeIsNotCompared) {
  change_b([](std::vector<RecordedStep>& steps) {
    for (const char* name : {"layers.0", "layers.0@gradient"}) {
      steps[0].activations.erase(name);
      steps[0].left_out.emplace_back(name);
    }
  });
  const Comparison found = compared();
  EXPECT_EQ(found.finding(), Finding::kRounding);
  EXPECT_EQ(found.left_out, (std::vector<std::string>{"late", "layers.0", "layers.0@gradient"}));
}

TEST_F(ActivationsTest, TheFirstOfForwardIsNamedBeforeTheLoss) {
  change_b([](std::vector<RecordedStep>& steps) {
    steps[0].loss = 4;
    steps[0].activations["layers.0"].mul_(2);
    steps[0].activations["layers.0.router"][0].mul_(1.5);
    steps[0].activations["embedding@gradient"].mul_(2);
    steps[0].gradients["head.weight"].mul_(2);
  });
  const Comparison found = compared();
  ASSERT_EQ(found.finding(), Finding::kBug);
  EXPECT_EQ(found.first()->kind, ProbeKind::kActivation);
  EXPECT_EQ(found.first()->name, "layers.0.router");
  ASSERT_TRUE(found.first()->first);
  EXPECT_EQ(found.first()->first->index, (std::vector<int64_t>{0, 0}));
}

TEST_F(ActivationsTest, TheLastGradientOfForwardIsTheFirstOfBackward) {
  change_b([](std::vector<RecordedStep>& steps) {
    steps[0].activations["embedding@gradient"].mul_(2);
    steps[0].activations["layers.0@gradient"].mul_(2);
    steps[0].gradients["head.weight"].mul_(2);
  });
  EXPECT_EQ(compared().first()->kind, ProbeKind::kActivationGradient);
  EXPECT_EQ(compared().first()->name, "layers.0@gradient");
}

TEST_F(ActivationsTest, OtherChoicesAreTiesInFp32AndUndecidedInFp64) {
  steps_["b32"][0].activations["layers.0.router@choices"][2] = 5;
  Comparison found = compared();
  EXPECT_EQ(found.finding(), Finding::kRounding);
  const auto choices = std::ranges::find(found.probes, ProbeKind::kChoices, &Probe::kind);
  ASSERT_NE(choices, found.probes.end());
  EXPECT_THAT(choices->note, testing::HasSubstr("1 of B's own choices"));
  EXPECT_THAT(choices->note, testing::HasSubstr("ties"));
  steps_["b64"][0].activations["layers.0.router@choices"][2] = 5;
  std::filesystem::remove_all(folder_.path() / "b64");
  std::filesystem::remove_all(folder_.path() / "b32");
  std::filesystem::remove_all(folder_.path() / "a64");
  std::filesystem::remove_all(folder_.path() / "a32");
  found = compared();
  EXPECT_EQ(found.finding(), Finding::kUndecided);
  EXPECT_EQ(found.first()->kind, ProbeKind::kChoices);
}

TEST_F(ActivationsTest, ReplicasThatDifferAreJudgedAsTwoRuns) {
  const auto replicas = [](double absolute) {
    return nlohmann::json{
        {"layers.0", {{"ranks", {1}}, {"absolute", absolute}, {"relative", absolute}}}};
  };
  steps_["b32"][0].replicas = replicas(1e-6);
  steps_["b64"][0].replicas = replicas(1e-15);
  EXPECT_EQ(compared().finding(), Finding::kRounding);
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    std::filesystem::remove_all(entry);
  steps_["b32"][0].replicas = steps_["b64"][0].replicas = replicas(0.25);
  const Comparison found = compared();
  ASSERT_EQ(found.finding(), Finding::kBug);
  EXPECT_EQ(found.first()->name, "layers.0");
  EXPECT_THAT(found.first()->note, testing::HasSubstr("ranks of B"));
  EXPECT_THAT(found.first()->note, testing::EndsWith(": 1"));
}

TEST_F(ActivationsTest, AGradientThatRanksHoldDifferentlyIsABugBehindTheActivations) {
  const nlohmann::json replicas = {
      {"head.weight", {{"ranks", {1}}, {"absolute", nullptr}, {"relative", nullptr}}}};
  steps_["b32"][1].gradient_replicas = steps_["b64"][1].gradient_replicas = replicas;
  const Comparison found = compared();
  ASSERT_EQ(found.finding(), Finding::kBug);
  EXPECT_EQ(found.first()->step, 2);
  EXPECT_EQ(found.first()->kind, ProbeKind::kGradient);
  EXPECT_EQ(found.first()->name, "head.weight");
  EXPECT_THAT(found.first()->note, testing::HasSubstr("ranks of B"));
}

TEST_F(ActivationsTest, WithoutARecordInOneRunTheyAreNotCompared) {
  for (RecordedStep& step : steps_["b64"]) step.activations.clear();
  EXPECT_EQ(compared().num_probes, 2 * 9);
}

// A's own runs with roundoffs bound what B may differ by.
class BoundTest : public ActivationsTest {
 protected:
  // Tensors are handles: those of `off` get memory of their own.
  void copy_b_to_off() {
    steps_["off"] = steps_["b32"];
    for (RecordedStep& step : steps_["off"]) {
      for (Tensors* const tensors : {&step.gradients, &step.checkpoint, &step.activations}) {
        for (auto& [name, tensor] : *tensors) tensor = tensor.clone();
      }
    }
  }
  Comparison bounded() {
    for (const auto& [name, steps] : steps_) write_run(folder_.path() / name, kParameters, steps);
    const RecordedRun a(folder_.path() / "a32"), b(folder_.path() / "b32");
    const RecordedRun off(folder_.path() / "off");
    const RecordedRun* const perturbed[] = {&off};
    return compare_by_bound({a, b}, perturbed);
  }
};

TEST_F(BoundTest, DifferencesAsThoseOfRoundoffsAreRounding) {
  copy_b_to_off();
  const Comparison found = bounded();
  EXPECT_FALSE(found.is_proved);
  EXPECT_EQ(found.finding(), Finding::kRounding);
  EXPECT_GT(found.largest_rounding, 0x1p-24);
}

// A roundoff turns the sign of some gradients, and Adam's first step with it.
TEST_F(BoundTest, WeightsAreBoundedTogether) {
  copy_b_to_off();
  steps_["off"][0].checkpoint["embed.weight"][0][0] += 1e-3;
  steps_["b32"][0].checkpoint["head.weight"][0][0] += 2e-3;
  EXPECT_EQ(bounded().finding(), Finding::kRounding);
  steps_["b32"][0].checkpoint["head.weight"][0][0] += 1;
  EXPECT_EQ(bounded().first()->kind, ProbeKind::kWeight);
}

TEST_F(BoundTest, LargerOnesAreNamedWhereTheyAreFirst) {
  copy_b_to_off();
  steps_["b32"][1].activations["layers.0"].mul_(1.5);
  steps_["b32"][1].loss = 9;
  const Comparison found = bounded();
  ASSERT_EQ(found.finding(), Finding::kBug);
  EXPECT_EQ(found.first()->step, 2);
  EXPECT_EQ(found.first()->name, "layers.0");
}

}  // namespace
}  // namespace trireme::verify
