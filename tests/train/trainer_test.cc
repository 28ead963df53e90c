#include "trireme/train/trainer.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/train/text_run.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/train/run/inputs.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// Sets `stop` in the `occurrence`th all-gather of so many elements; 0: never.
class AskedInACall : public harness::CountingCommunicator {
 public:
  AskedInACall(comm::Communicator& inner, int64_t num_elements, int occurrence,
               std::atomic<bool>& stop)
      : CountingCommunicator(inner), num_elements_(num_elements), left_(occurrence), stop_(stop) {}

  comm::WorkPtr run(comm::Collective call) override {
    const bool is_counted = call.kind == comm::Collective::Kind::kAllGather &&
                            call.data.is_floating_point() && call.data.numel() == num_elements_;
    if (is_counted && --left_ == 0) stop_ = true;
    return CountingCommunicator::run(std::move(call));
  }

 private:
  int64_t num_elements_;
  int left_;
  std::atomic<bool>& stop_;
};

class TrainerTest : public TextRun {
 protected:
  // Every step once, with loss and gradient norm within `relative` of the other run's; 0: the same
  // bits.
  void expect_same_run(const std::string& actual, const std::string& expected, double relative) {
    const auto a = metrics(actual);
    const auto b = metrics(expected);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].at("step"), static_cast<int64_t>(i) + 1);
      for (const char* key : {"loss", "grad_norm"}) {
        const double x = a[i].at(key);
        const double y = b[i].at(key);
        EXPECT_LE(std::abs(x - y), relative * std::abs(y)) << key << " of step " << i + 1;
      }
    }
  }

  std::string error_of(const RunConfig& broken, int num_ranks = 1) {
    return harness::message_of([&] { run(broken, num_ranks); });
  }

  // Trains on two ranks. Rank `asked` alone is asked to stop, in its `occurrence`th all-gather of
  // `num_elements` floating-point numbers.
  Outcome run_asked(const RunConfig& config, int asked, int64_t num_elements, int occurrence) {
    std::atomic<Outcome> outcome = Outcome::kFinished;
    TrainObserver silent;
    harness::run_ranks(2, [&](comm::Communicator& world) {
      std::atomic<bool> stop = false;
      AskedInACall watched(world, num_elements, world.rank() == asked ? occurrence : 0, stop);
      Trainer trainer(config, watched, silent);
      outcome = trainer.run(stop);
    });
    return outcome;
  }
};

TEST_F(TrainerTest, LossFallsAndEveryStepIsInTheMetrics) {
  run(config("a", {{"train.steps", "60"}}), 1);
  const auto lines = metrics("a");
  ASSERT_EQ(lines.size(), 60u);
  EXPECT_LT(lines.back().at("loss").get<double>(), lines.front().at("loss").get<double>() - 1.0);
}

TEST_F(TrainerTest, EveryStepIsInTheRecorderWithTheTimeThatTheRankHasWaited) {
  const RunConfig five = config("recorded", {{"train.steps", "5"}});
  const auto recorder = std::make_shared<comm::Recorder>(comm::RecorderOptions{});
  const std::atomic<bool> stop = false;
  TrainObserver silent;
  harness::run_ranks(2, [&](comm::Communicator& world) {
    Trainer(five, world, silent, {.recorder = world.rank() == 1 ? recorder : nullptr}).run(stop);
  });
  const comm::Ring ring = recorder->snapshot();
  ASSERT_EQ(ring.steps.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    const comm::RecordedStep& step = ring.steps[i];
    EXPECT_EQ(step.step, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(step.state, comm::CallState::kDone);
    EXPECT_GT(step.waiting.count(), 0);
    EXPECT_LE(step.waiting, step.ended - step.began);
  }
}

TEST_F(TrainerTest, RanksAndAccumulationAreInterchangeable) {
  // The issue's own bounds, over 50 steps.
  for (const auto& [precision, bound] : {std::pair{"fp64", 1e-12}, std::pair{"fp32", 1e-5}}) {
    const auto with = [&](const std::string& name) {
      return config(
          name + precision,
          {{"train.precision", precision}, {"train.steps", "50"}, {"checkpoint.interval", "0"}});
    };
    run(with("one"), 1);
    run(with("two"), 2);
    run(with("four"), 4);
    expect_same_run(std::string("two") + precision, std::string("one") + precision, bound);
    expect_same_run(std::string("four") + precision, std::string("one") + precision, bound);
  }
}

TEST_F(TrainerTest, OneLayoutTwiceGivesTheSameBits) {
  run(config("a"), 2);
  run(config("b", {{"train.bucket_bytes", "100"},
                   {"train.overlap", "false"},
                   {"train.symmetric_memory", "false"}}),
      2);
  expect_same_run("b", "a", 0);
}

TEST_F(TrainerTest, StoppedAndResumedGivesTheBitsOfNotHavingStopped) {
  run(config("whole"), 2);
  EXPECT_EQ(run(config("parts"), 2, /*stop_after=*/4), Outcome::kStopped);
  EXPECT_EQ(metrics("parts").size(), 4u);
  EXPECT_EQ(run(config("parts"), 2), Outcome::kFinished);
  expect_same_run("parts", "whole", 0);
}

TEST_F(TrainerTest, ARequestToStopDuringASaveCostsNoFurtherStep) {
  EXPECT_EQ(run(config("a"), 2, /*stop_after=*/3), Outcome::kStopped);
  EXPECT_EQ(metrics("a").size(), 2u);
}

TEST_F(TrainerTest, ARequestToStopDuringAStepEndsWithIt) {
  run(config("whole"), 2);
  for (const int asked : {0, 1}) {
    SCOPED_TRACE(asked);
    const RunConfig parts = config(concat("parts", asked), {{"checkpoint.interval", "0"}});
    // The third gathering of losses, of two microbatches, is in step 3.
    EXPECT_EQ(run_asked(parts, asked, /*num_elements=*/2, /*occurrence=*/3), Outcome::kStopped);
    EXPECT_EQ(metrics(concat("parts", asked)).size(), 3u);
    EXPECT_TRUE(fs::exists(folder_ / concat("parts", asked) / "checkpoints/step-000003"));
    run(parts, 2);
    expect_same_run(concat("parts", asked), "whole", 0);
  }
}

TEST_F(TrainerTest, ARequestToStopCutsALongEvaluationShort) {
  for (const int asked : {0, 1}) {
    SCOPED_TRACE(asked);
    const std::string name = concat("a", asked);
    const RunConfig parts = config(name, {{"train.evaluate_interval", "1"},
                                          {"train.evaluate_sequences", "1000"},
                                          {"train.micro_batch", "1"},
                                          {"checkpoint.interval", "0"}});
    // The report of step 2 has gone when the request comes: the evaluation is what is left.
    EXPECT_EQ(run_asked(parts, asked, /*num_elements=*/19, /*occurrence=*/2), Outcome::kStopped);
    const auto lines = metrics(name);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_TRUE(lines[0].contains("validation_loss"));
    EXPECT_FALSE(lines[1].contains("validation_loss"));
    EXPECT_TRUE(fs::exists(folder_ / name / "checkpoints/step-000002"));
  }
}

TEST_F(TrainerTest, ARequestToStopWhileARunStartsTrainsNothing) {
  const std::atomic<bool> stop = true;
  TrainObserver silent;
  harness::run_ranks(2, [&](comm::Communicator& world) {
    Trainer trainer(config("a"), world, silent);
    EXPECT_EQ(trainer.run(stop), Outcome::kStopped);
  });
  EXPECT_EQ(metrics("a").size(), 0u);
  run(config("a"), 2);
  EXPECT_EQ(metrics("a").size(), 6u);
}

TEST_F(TrainerTest, AFolderThatIsLostEndsAllRanksWithOneMessage) {
  run(config("whole"), 2);
  const auto lost = [&](const std::string& name, const std::function<void(const fs::path&)>& lose) {
    struct Observer : TrainObserver {
      std::function<void()> lose;
      void on_step(const StepMetrics& metrics) override {
        if (metrics.step == 3) lose();
      }
    } observer;
    observer.lose = [&] { lose(folder_ / name); };
    const std::atomic<bool> stop = false;
    TrainObserver silent;
    std::vector<std::string> messages(2);
    harness::run_ranks(2, [&](comm::Communicator& world) {
      Trainer trainer(config(name, {{"checkpoint.interval", "0"}}), world,
                      world.rank() == 0 ? observer : silent);
      messages[static_cast<size_t>(world.rank())] =
          harness::message_of<ConfigError>([&] { trainer.run(stop); });
    });
    EXPECT_EQ(messages[0], messages[1]);
    return messages[0];
  };
  const fs::path moved = folder_ / "elsewhere";
  EXPECT_NE(
      lost("moved", [&](const fs::path& run) { fs::rename(run, moved); }).find("was moved to"),
      std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "moved"));
  run(config("elsewhere"), 2);
  expect_same_run("elsewhere", "whole", 0);

  EXPECT_NE(lost("gone", [](const fs::path& run) { fs::remove_all(run); }).find("was removed"),
            std::string::npos);
  run(config("gone"), 2);
  EXPECT_EQ(metrics("gone").front().at("step"), 4);
  EXPECT_EQ(metrics("gone").back().at("loss"), metrics("whole").back().at("loss"));

  EXPECT_NE(lost("taken",
                 [](const fs::path& run) {
                   fs::remove_all(run);
                   fs::create_directory(run);
                 })
                .find("left alone"),
            std::string::npos);
  EXPECT_TRUE(fs::is_empty(folder_ / "taken"));
}

TEST_F(TrainerTest, ResumesAtAnotherNumberOfRanks) {
  const auto with = [&](const char* name) { return config(name, {{"train.precision", "fp64"}}); };
  run(with("whole"), 1);
  run(with("parts"), 4, /*stop_after=*/3);
  run(with("parts"), 2);
  expect_same_run("parts", "whole", 1e-12);
}

// Masks follow from the step and the place in the global batch.
TEST_F(TrainerTest, DropoutGoesOnWithTheSameMasksAfterAResumeAtAnyNumberOfRanks) {
  const auto with = [&](const char* name, const char* dropout = "0.2") {
    return config(name, {{"train.precision", "fp64"}, {"model.dropout", dropout}});
  };
  run(with("one"), 1);
  run(with("two"), 2);
  run(with("parts"), 2, /*stop_after=*/3);
  run(with("parts"), 2);
  expect_same_run("parts", "two", 0);
  run(with("moved"), 4, /*stop_after=*/3);
  run(with("moved"), 1);
  expect_same_run("moved", "one", 1e-12);
  expect_same_run("two", "one", 1e-12);
  run(with("plain", "0"), 1);
  EXPECT_NE(metrics("plain").front().at("loss"), metrics("one").front().at("loss"));
}

// Residuals, PowerSGD's Q and the warm-up's count are in the checkpoint.
TEST_F(TrainerTest, CompressedRunsStopAndResumeWithTheSameBitsAtEveryStage) {
  for (const auto& [rule, order] : {std::pair("bf16", "microbatch-first"),
                                    {"int8", "rank-first"},
                                    {"powersgd", "rank-first"},
                                    {"topk", "microbatch-first"}}) {
    SCOPED_TRACE(rule);
    const auto with = [&, rule = rule, order = order](const char* name, const char* zero) {
      return config(concat(name, rule, zero), {{"train.compression", rule},
                                               {"train.compression_rank", "2"},
                                               {"train.compression_ratio", "0.05"},
                                               {"train.compression_warmup", "1"},
                                               {"parallel.gradient_order", order},
                                               {"parallel.zero", zero}});
    };
    run(with("whole", "0"), 2);
    for (const char* zero : {"0", "2", "3"}) {
      EXPECT_EQ(run(with("parts", zero), 2, /*stop_after=*/3), Outcome::kStopped);
      run(with("parts", zero), 2);
      expect_same_run(concat("parts", rule, zero), concat("whole", rule, "0"), 0);
    }
  }
}

TEST_F(TrainerTest, CompressionStartsAnewWithAnotherRuleAndGoesOnAtAnotherNumberOfRanks) {
  const auto with = [&](const char* rule) {
    return config("a", {{"train.compression", rule}, {"train.compression_ratio", "0.05"}});
  };
  struct Observer : TrainObserver {
    bool restarted = false;
    void on_start(const RunConfig&, const RunSummary& summary) override {
      restarted = summary.compression_restarted;
    }
  };
  const auto starts_anew = [&](const char* rule, int ranks) {
    Observer observer;
    TrainObserver silent;
    harness::run_ranks(ranks, [&](comm::Communicator& world) {
      Trainer trainer(with(rule), world, world.rank() == 0 ? observer : silent);
    });
    return observer.restarted;
  };
  run(with("topk"), 2, /*stop_after=*/3);
  EXPECT_FALSE(starts_anew("topk", 2));
  EXPECT_FALSE(starts_anew("topk", 4));
  EXPECT_FALSE(starts_anew("topk", 1));
  EXPECT_TRUE(starts_anew("powersgd", 2));
  EXPECT_TRUE(starts_anew("int8", 2));
  EXPECT_TRUE(starts_anew("none", 2));
  run(with("topk"), 4);
  EXPECT_EQ(metrics("a").size(), 6u);
  run(config("b"), 2, /*stop_after=*/3);
  run(config("b", {{"train.compression", "topk"}}), 2);
  EXPECT_EQ(metrics("b").size(), 6u);
}

TEST_F(TrainerTest, CompressionIsInTheMetricsByItsBytes) {
  run(config("none"), 2);
  run(config("bf16", {{"train.compression", "bf16"}}), 2);
  run(config("int8", {{"train.compression", "int8"}}), 2);
  const auto bytes = [&](const char* name) {
    return metrics(name).back().at("gradient_bytes").get<double>();
  };
  EXPECT_EQ(bytes("bf16"), bytes("none") / 2);
  EXPECT_LT(bytes("int8"), bytes("bf16"));
}

TEST_F(TrainerTest, TheNoiseScaleIsThatOfTheMicrobatchesWhoeverComputesThem) {
  const auto with = [&](const std::string& name, std::vector<Override> more = {}) {
    more.insert(more.end(), {{"train.precision", "fp64"}, {"train.measure_noise", "true"}});
    return config(name, more);
  };
  run(with("one"), 1);
  run(with("two", {{"parallel.zero", "3"}}), 2, /*stop_after=*/3);
  run(with("two", {{"parallel.zero", "3"}}), 2);  // resumed: the averages go on
  run(with("four", {{"parallel.zero", "2"}}), 4);
  const auto expected = metrics("one");
  int64_t found = 0;
  for (const char* name : {"two", "four"}) {
    const auto lines = metrics(name);
    ASSERT_EQ(lines.size(), expected.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      ASSERT_EQ(lines[i].contains("noise_scale"), expected[i].contains("noise_scale")) << i;
      if (!lines[i].contains("noise_scale")) continue;
      // Printed with six digits; a quotient of differences of norms.
      const double scale = expected[i].at("noise_scale");
      EXPECT_NEAR(lines[i].at("noise_scale").get<double>(), scale, 1e-4 * scale);
      ++found;
    }
  }
  EXPECT_GT(found, 0);
  EXPECT_NE(error_of(with("large", {{"train.micro_batch", "8"}})).find("train.micro_batch"),
            std::string::npos);
}

TEST_F(TrainerTest, EvaluationIsTheSameOnAnyNumberOfRanks) {
  for (const int ranks : {1, 3, 4}) {
    run(config(concat("ranks", ranks), {{"train.evaluate_interval", "6"},
                                        {"train.evaluate_sequences", "5"},
                                        {"train.precision", "fp64"},
                                        {"train.global_batch", "24"}}),
        ranks);
    const double loss = metrics(concat("ranks", ranks)).back().at("validation_loss");
    const double expected = metrics("ranks1").back().at("validation_loss");
    EXPECT_NEAR(loss, expected, 1e-12 * expected);
  }
}

TEST_F(TrainerTest, AFinishedRunHasNothingLeftToDo) {
  run(config("a"), 1);
  EXPECT_EQ(run(config("a"), 1), Outcome::kFinished);
  EXPECT_EQ(metrics("a").size(), 6u);
}

TEST_F(TrainerTest, AnotherBatchAfterAResumeGoesOnInTheData) {
  run(config("a", {{"train.steps", "4"}}), 1);
  run(config("a", {{"train.steps", "6"}, {"train.global_batch", "4"}}), 1);
  EXPECT_EQ(metrics("a").size(), 6u);
  const auto state = nlohmann::json::parse(
                         read_file(folder_ / "a" / "checkpoints" / "step-000006" / "manifest.json"))
                         .at("state");
  EXPECT_EQ(state.at("next_sample"), 4 * 8 + 2 * 4);
}

TEST_F(TrainerTest, EvaluatesWhenDueAndAtTheEnd) {
  run(config("a", {{"train.evaluate_interval", "4"}, {"train.evaluate_sequences", "8"}}), 2);
  std::vector<int64_t> steps;
  for (const auto& line : metrics("a")) {
    if (line.contains("validation_loss")) steps.push_back(line.at("step"));
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{4, 6}));
}

TEST_F(TrainerTest, DivergenceNamesTheStepAndTheParameter) {
  const std::string error = error_of(
      config("a", {{"optimizer.learning_rate", "1e30"}, {"optimizer.warmup_steps", "0"}}), 2);
  EXPECT_NE(error.find("step 2"), std::string::npos) << error;
  EXPECT_NE(error.find("weight"), std::string::npos) << error;
}

// Ranks that wait for another's files learn why it stopped, not that it is lost.
TEST_F(TrainerTest, AnOpeningThatFailsOnOneRankEndsAllWithItsReason) {
  std::atomic<int> num_refused = 0;
  harness::run_ranks(2, [&](comm::Communicator& world) {
    TrainObserver silent;
    const std::string data = (folder_ / (world.rank() == 1 ? "nowhere" : "data")).string();
    const RunConfig mine = config("run", {{"data.path", data}});
    const std::string error = harness::message_of([&] { Trainer trainer(mine, world, silent); });
    EXPECT_TRUE(error.starts_with("rank 1: ")) << error;
    EXPECT_NE(error.find("nowhere"), std::string::npos) << error;
    ++num_refused;
  });
  EXPECT_EQ(num_refused, 2);
}

TEST_F(TrainerTest, AFolderInUseEndsAllRanksAlike) {
  RunConfig mine = config("run");
  std::filesystem::create_directories(mine.output.folder);
  const auto lock = lock_output_folder(mine);
  std::atomic<int> num_refused = 0;
  harness::run_ranks(2, [&](comm::Communicator& world) {
    TrainObserver silent;
    const std::string error =
        harness::message_of<ConfigError>([&] { Trainer trainer(mine, world, silent); });
    EXPECT_NE(error.find(mine.output.folder), std::string::npos) << error;
    ++num_refused;
  });
  EXPECT_EQ(num_refused, 2);
}

TEST_F(TrainerTest, ACheckpointOfAnotherModelIsRefused) {
  run(config("a"), 1);
  const auto before = metrics("a");
  // Shapes of another width differ; those of other heads and angles do not.
  for (const auto& [key, value] :
       {std::pair{"model.width", "32"}, std::pair{"model.heads", "1"},
        std::pair{"model.rope_base", "500.0"}, std::pair{"optimizer.name", "lion"}}) {
    for (const int ranks : {1, 2}) {
      const RunConfig other = config("a", {{key, value}, {"train.steps", "8"}});
      EXPECT_THROW(run(other, ranks), ConfigError);
      EXPECT_NE(error_of(other, ranks).find(concat("belongs to another run: ", key)),
                std::string::npos);
    }
  }
  EXPECT_EQ(metrics("a"), before);
  EXPECT_EQ(read_file(folder_ / "a/config.toml").find("500"), std::string::npos);
  const RunConfig wider =
      config("a", {{"model.width", "32"}, {"train.steps", "8"}, {"resume.allow", "model.width"}});
  EXPECT_THROW(run(wider, 1), CheckpointError);
  EXPECT_NE(error_of(wider).find("model.width 16 -> 32"), std::string::npos);
}

TEST_F(TrainerTest, WhatIsAllowedOnceStaysWithoutAsking) {
  run(config("a"), 1);
  run(config("a", {{"model.rope_base", "500.0"},
                   {"train.steps", "8"},
                   {"resume.allow", "model.rope_base"}}),
      1);
  EXPECT_EQ(metrics("a").size(), 8u);
  run(config("a", {{"model.rope_base", "500.0"}, {"train.steps", "9"}}), 1);
  EXPECT_EQ(metrics("a").size(), 9u);
  EXPECT_THROW(run(config("a", {{"train.steps", "10"}}), 1), ConfigError);
}

TEST_F(TrainerTest, OtherDataAtTheSamePathIsRefusedAndTheSameElsewhereTaken) {
  run(config("a"), 1);
  for (const char* end : {".bin", ".idx", ".tokenizer.json"}) {
    fs::copy_file((folder_ / "data").string() + end, (folder_ / "copy").string() + end);
  }
  const auto longer = [&](const std::string& name, std::vector<Override> more = {}) {
    more.insert(more.end(), {{"train.steps", "8"}, {"data.path", (folder_ / name).string()}});
    return config("a", more);
  };
  std::ofstream(folder_ / "text.txt", std::ios::in) << "LINE";  // in place of "line"
  dataset::prepare({.inputs = {(folder_ / "text.txt").string()},
                    .output = (folder_ / "data").string(),
                    .validation_fraction = 0.1});
  EXPECT_NE(error_of(longer("data"), 2).find("belongs to another run: data.path"),
            std::string::npos);
  EXPECT_EQ(metrics("a").size(), 6u);
  EXPECT_EQ(error_of(longer("copy"), 2), "");
  EXPECT_EQ(metrics("a").size(), 8u);
  EXPECT_EQ(error_of(longer("data", {{"resume.allow", "data.path"}})), "");
}

}  // namespace
}  // namespace trireme::train
