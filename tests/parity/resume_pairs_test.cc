// A run saved at one layout and resumed at another goes on as if it had not stopped: loss and
// gradient norm of the next five steps, then every weight and optimizer state. Models, sparse ones
// among them, and layouts of up to eight ranks are drawn from a seed, which a failure prints; seed
// 217 once more, and nothing else:
//   TRIREME_LAYOUT_SEED=217 parity_test --gtest_filter='ResumePairs.*'
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/tensors.h"
#include "tests/parity/gradient_scale.h"
#include "tests/parity/random_layout.h"
#include "tests/train/text_run.h"
#include "trireme/checkpoint/checkpoint.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// Steps before the resume and in all, as the folders of their checkpoints.
constexpr int64_t kSaved = 2, kSteps = 7;
constexpr const char* kSavedFolder = "checkpoints/step-000002";
constexpr const char* kLastFolder = "checkpoints/step-000007";

class ResumePairs : public TextRun, public ::testing::WithParamInterface<int> {
 protected:
  void check_seed(int seed) {
    SCOPED_TRACE(concat("TRIREME_LAYOUT_SEED=", seed));
    Draw draw(seed);
    Overrides problem = draw_problem(draw);
    // The vocabulary is that of the data.
    problem.insert(problem.end(), {{"train.precision", "fp64"},
                                   {"train.global_batch", std::to_string(draw.number(4, 5))},
                                   {"train.steps", std::to_string(kSteps)},
                                   {"checkpoint.interval", std::to_string(kSaved)},
                                   {"checkpoint.keep", "9"},
                                   {"optimizer.name", draw.one_of({"adamw", "sgd"})},
                                   {"checkpoint.mode", draw.one_of({"async", "sync"})},
                                   {"checkpoint.compression", draw.one_of({"none", "zstd"})}});
    const auto masks = [](const Override& key) { return key.first == "data.masked_share"; };
    if (std::ranges::any_of(problem, masks)) {
      problem.emplace_back("data.mask_token", "257");  // behind the tokenizer's
    }
    const bool same_bits = draw.number(0, 3) == 0;
    // Rounded states would enlarge the last bit's differences.
    if (same_bits) problem.emplace_back("optimizer.state_dtype", draw.one_of({"fp32", "bf16"}));
    const DrawnLayout first = draw_layout(draw, problem);
    const DrawnLayout second =
        same_bits ? with_other_stages(draw, first) : draw_layout(draw, problem);
    const Overrides ramp{{"train.batch_ramp_start", draw.one_of({"1", "2", "4"})},
                         {"train.batch_ramp_steps", "4"}};
    const auto may_grow = [&](const DrawnLayout& layout) {
      return is_legal(joined(joined(problem, ramp), layout.all()), layout.ranks);
    };
    if (may_grow(first) && may_grow(second)) problem = joined(problem, ramp);
    SCOPED_TRACE(concat(describe(problem), "\nsaved at ", first.ranks,
                        " ranks: ", describe(first.all()), "\nresumed at ", second.ranks,
                        " ranks: ", describe(second.all())));
    const std::string whole = concat("whole", seed), resumed = concat("resumed", seed);
    run(config(whole, joined(problem, first.all())), first.ranks);
    // The checkpoint alone: what is compared below was computed after it.
    fs::create_directories(folder_ / resumed / "checkpoints");
    fs::copy(folder_ / whole / kSavedFolder, folder_ / resumed / kSavedFolder);
    run(config(resumed, joined(problem, second.all())), second.ranks);
    const double relative = first.sums == second.sums ? 0 : 1e-10;
    expect_same_steps(resumed, whole, relative);
    expect_same_tensors(resumed, whole, relative);
    fs::remove_all(folder_ / whole);
    fs::remove_all(folder_ / resumed);
  }

 private:
  void expect_same_steps(const std::string& resumed, const std::string& whole, double relative) {
    const auto actual = metrics(resumed), expected = metrics(whole);
    ASSERT_EQ(std::ssize(actual), kSteps - kSaved);
    ASSERT_EQ(std::ssize(expected), kSteps);
    for (size_t i = 0; i < actual.size(); ++i) {
      const nlohmann::json& step = expected[i + kSaved];
      EXPECT_EQ(actual[i].at("step"), step.at("step"));
      for (const char* key : {"loss", "grad_norm"}) {
        const double value = step.at(key);
        EXPECT_NEAR(actual[i].at(key).get<double>(), value, relative * std::abs(value))
            << key << " of step " << step.at("step");
      }
    }
  }

  void expect_same_tensors(const std::string& resumed, const std::string& whole, double relative) {
    const auto actual = checkpoint::load_global(folder_ / resumed / kLastFolder);
    const auto expected = checkpoint::load_global(folder_ / whole / kLastFolder);
    if (relative == 0) return harness::assert_same_bits(actual, expected);
    ASSERT_EQ(actual.size(), expected.size());
    const auto tensor_of = [&](const std::string& name) { return expected.at(name); };
    for (const auto& [name, tensor] : expected) {
      ASSERT_TRUE(actual.contains(name)) << name;
      const double bound = tensor.numel() == 0 ? 0 : relative * gradient_scale(name, tensor_of);
      harness::assert_close(actual.at(name), tensor, 0, bound, name);
    }
  }
};

// Ten seeds a test.
TEST_P(ResumePairs, GoOnAsTheUninterruptedRun) {
  for (int i = 0; i < 10 && !HasFatalFailure(); ++i) check_seed(10 * GetParam() + i);
}
// One more, of 60 and above, or the one that the environment asks for.
TEST_F(ResumePairs, OfAnySeedGoOnAsTheUninterruptedRun) { check_seed(layout_seed(60)); }
INSTANTIATE_TEST_SUITE_P(Seeds, ResumePairs, ::testing::Range(0, 6));

}  // namespace
}  // namespace trireme::train
