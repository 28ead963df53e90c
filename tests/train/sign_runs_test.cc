// Runs whose ranks exchange signs, or add their gradients by Adasum.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/text_run.h"
#include "trireme/base/error.h"
#include "trireme/train/trainer.h"

namespace trireme::train {
namespace {

class SignRuns : public TextRun {
 protected:
  RunConfig with(const std::string& run, std::vector<Override> overrides) {
    overrides.insert(overrides.begin(), {{"optimizer.freeze_step", "2"},
                                         {"optimizer.variance_updates", "1"},
                                         {"parallel.gradient_order", "microbatch-first"}});
    return config(run, overrides);
  }

  // Losses and norms of every step.
  void expect_same_curve(const std::string& actual, const std::string& expected, double relative) {
    const auto a = metrics(actual), b = metrics(expected);
    ASSERT_EQ(a.size(), b.size()) << actual;
    for (size_t i = 0; i < a.size(); ++i) {
      for (const char* key : {"loss", "grad_norm"}) {
        const double x = a[i].at(key), y = b[i].at(key);
        EXPECT_LE(std::abs(x - y), relative * std::abs(y)) << actual << ", step " << i + 1;
      }
    }
  }

  double last(const std::string& run, const char* key) {
    return metrics(run).back().at(key).get<double>();
  }
};

TEST_F(SignRuns, AFreezeThatNeverComesGivesTheBitsOfAdamW) {
  for (const char* zero : {"0", "2", "3"}) {
    const auto named = [&](const char* name) { return concat(name, zero); };
    run(with(named("adamw"), {{"parallel.zero", zero}}), 2);
    run(with(named("onebit-adam"), {{"parallel.zero", zero},
                                    {"optimizer.name", "onebit-adam"},
                                    {"optimizer.freeze_step", "100"}}),
        2);
    expect_same_curve(named("onebit-adam"), named("adamw"), 0);
  }
}

TEST_F(SignRuns, EveryStageHasTheBitsOfDdpAndAResumeToo) {
  for (const auto& [name, precision] : {std::pair("onebit-adam", "fp32"),
                                        {"onebit-adam", "bf16"},
                                        {"onebit-lamb", "fp32"},
                                        {"zero-one-adam", "fp32"}}) {
    const auto config_of = [&, name = name, precision = precision](const std::string& run,
                                                                   const char* zero) {
      return with(
          run, {{"optimizer.name", name}, {"train.precision", precision}, {"parallel.zero", zero}});
    };
    const std::string whole = concat(name, precision);
    run(config_of(whole, "0"), 2);
    for (const char* zero : {"0", "1", "2", "3"}) {
      const std::string parts = concat(whole, "-", zero);
      EXPECT_EQ(run(config_of(parts, zero), 2, /*stop_after=*/5), Outcome::kStopped);
      run(config_of(parts, zero), 2);
      expect_same_curve(parts, whole, 0);
    }
  }
}

TEST_F(SignRuns, AResumeAtAnotherStageGoesOnWithTheSameBits) {
  run(with("whole", {{"optimizer.name", "onebit-adam"}}), 2);
  const auto at_stage = [&](const char* zero) {
    return with("moved", {{"optimizer.name", "onebit-adam"}, {"parallel.zero", zero}});
  };
  run(at_stage("0"), 2, /*stop_after=*/5);
  run(at_stage("3"), 2);
  expect_same_curve("moved", "whole", 0);
}

TEST_F(SignRuns, TheResidualsOfAnotherNumberOfRanksAreSharedOut) {
  struct Observer : TrainObserver {
    bool restarted = true;
    void on_start(const RunConfig&, const RunSummary& summary) override {
      restarted = summary.compression_restarted;
    }
  };
  const RunConfig moved = with("moved", {{"optimizer.name", "onebit-adam"}});
  run(moved, 4, /*stop_after=*/5);
  for (const int ranks : {2, 1, 4}) {
    Observer observer;
    TrainObserver silent;
    harness::run_ranks(ranks, [&](comm::Communicator& world) {
      Trainer trainer(moved, world, world.rank() == 0 ? observer : silent);
    });
    EXPECT_FALSE(observer.restarted) << ranks;
  }
  run(moved, 2);
  EXPECT_EQ(metrics("moved").size(), 6u);
}

TEST_F(SignRuns, PipelinesAndTensorRanksExchangeSignsToo) {
  for (const char* name : {"onebit-adam", "zero-one-adam"}) {
    for (const auto& [axis, ranks] : {std::pair("parallel.pipeline", 4), {"parallel.tensor", 4}}) {
      const auto config_of = [&, axis = axis](const std::string& run) {
        return with(run, {{"optimizer.name", name}, {axis, "2"}, {"model.kv_heads", "2"}});
      };
      const std::string whole = concat(name, axis, "whole"), parts = concat(name, axis, "parts");
      run(config_of(whole), ranks);
      run(config_of(parts), ranks, /*stop_after=*/5);
      run(config_of(parts), ranks);
      expect_same_curve(parts, whole, 0);
      EXPECT_TRUE(std::isfinite(last(whole, "loss")));
    }
  }
}

// A rank that has an expert alone sends nothing, but its optimizer gets the momentum too.
TEST_F(SignRuns, ExpertsOfOneRankHaveMomentumToo) {
  const auto config_of = [&](const std::string& run) {
    return with(run, {{"model.family", "mixtral"},
                      {"model.experts", "4"},
                      {"parallel.expert", "2"},
                      {"train.steps", "30"},
                      {"optimizer.freeze_step", "15"},
                      {"optimizer.name", "onebit-adam"}});
  };
  run(config_of("whole"), 2);
  run(config_of("parts"), 2, /*stop_after=*/21);
  run(config_of("parts"), 2);
  expect_same_curve("parts", "whole", 0);
  EXPECT_LT(last("whole", "loss"), metrics("whole")[14].at("loss").get<double>());
}

// A stage computes what the whole model would, but for the order of sums in the norm.
TEST_F(SignRuns, APipelineAgreesWithItsDataRanks) {
  const auto config_of = [&](const std::string& run, const char* stages) {
    return with(run, {{"optimizer.name", "onebit-adam"},
                      {"train.precision", "fp64"},
                      {"parallel.pipeline", stages}});
  };
  run(config_of("flat", "1"), 2);
  run(config_of("stages", "2"), 4);
  expect_same_curve("stages", "flat", 1e-9);
}

TEST_F(SignRuns, SignsTakeFewBytesAndTheLossFalls) {
  const auto long_run = [&](const char* run, const char* name) {
    return with(run, {{"optimizer.name", name},
                      {"train.steps", "80"},
                      {"optimizer.freeze_step", "40"},
                      {"optimizer.variance_updates", "16"},
                      {"checkpoint.interval", "0"}});
  };
  run(long_run("plain", "adamw"), 2);
  for (const char* name : {"onebit-adam", "zero-one-adam"}) {
    run(long_run(name, name), 2);
    EXPECT_LT(last(name, "loss"), metrics(name).front().at("loss").get<double>() - 0.5) << name;
    // Rows of 16 numbers take 6 bytes for 64.
    EXPECT_LT(last(name, "gradient_bytes"), last("plain", "gradient_bytes") / 10) << name;
  }
}

TEST_F(SignRuns, AdasumHasTheBitsOfDdpAtEveryStageAndEqualRanksGainNothing) {
  const auto config_of = [&](const std::string& run, const char* zero) {
    return with(run, {{"train.gradient_sum", "adasum"}, {"parallel.zero", zero}});
  };
  for (const int ranks : {2, 4}) {
    run(config_of(concat("adasum", ranks), "0"), ranks);
    for (const char* zero : {"1", "2", "3"}) {
      const std::string name = concat("adasum", ranks, "-", zero);
      run(config_of(name, zero), ranks, /*stop_after=*/3);
      run(config_of(name, zero), ranks);
      expect_same_curve(name, concat("adasum", ranks), 0);
    }
  }
  run(with("one-adamw", {}), 1);
  run(config_of("one", "0"), 1);
  expect_same_curve("one", "one-adamw", 0);
}

TEST_F(SignRuns, WhatCannotBeIsRefusedInOneLine) {
  const auto refused = [&](std::vector<Override> overrides, const char* words, int ranks = 2) {
    const std::string message = harness::message_of([&] { run(with("no", overrides), ranks); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  const Override signs{"optimizer.name", "onebit-adam"};
  refused({signs, {"train.compression", "int8"}}, "train.compression = \"int8\"");
  refused({signs, {"train.reproducible", "true"}}, "train.reproducible");
  refused({signs, {"train.precision", "fp16"}}, "use bf16");
  refused({signs, {"train.skip_bad_steps", "2"}}, "train.skip_bad_steps = 2");
  refused({signs, {"optimizer.state_dtype", "bf16"}}, "set it to fp32");
  refused({signs, {"train.gradient_sum", "adasum"}}, "an exchange of its own");
  refused({signs, {"parallel.gradient_order", "rank-first"}}, "once per step");
  refused({signs, {"parallel.zero", "2"}, {"parallel.shard", "2"}}, "parallel.shard = 0", 4);
  refused({{"optimizer.name", "onebit-lamb"}, {"parallel.tensor", "2"}, {"model.kv_heads", "2"}},
          "whole matrices");
  refused({{"train.gradient_sum", "adasum"}, {"parallel.tensor", "2"}, {"model.kv_heads", "2"}},
          "whole gradients");
}

}  // namespace
}  // namespace trireme::train
