#include "trireme/train/state/places.h"

#include <filesystem>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/text_run.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class PlacesTest : public TextRun {
 protected:
  void TearDown() override {
    for (const fs::path& folder : memory_) fs::remove_all(folder);
  }
  // Trains until rank 0 fails at the line of step `last`; the others lose their peer.
  void crash(const RunConfig& config, int num_ranks, int64_t last) {
    struct Observer : TrainObserver {
      int64_t last = 0;
      void on_step(const StepMetrics& metrics) override {
        if (metrics.step == last) throw std::runtime_error("the end");
      }
    };
    const std::atomic<bool> stop = false;
    const auto train = [&](comm::Communicator& world) {
      Observer observer;
      observer.last = world.rank() == 0 ? last : 0;
      Trainer(config, world, observer).run(stop);
    };
    EXPECT_ANY_THROW(harness::run_ranks(num_ranks, train));
    memory_.push_back(memory_folder(mark_run(config.output.folder)));
  }
  std::vector<std::string> steps_in(const fs::path& root) const {
    std::vector<std::string> names;
    for (const fs::path& folder : checkpoint::list(root)) names.push_back(folder.filename());
    return names;
  }

  // Changes the last byte of each file of tensors.
  void damage_memory(const std::string& step) const {
    for (const auto& item : fs::directory_iterator(memory_.front() / "checkpoints" / step)) {
      if (item.path().extension() != ".safetensors") continue;
      std::string content = read_file(item.path());
      content.back() = static_cast<char>(content.back() ^ 1);
      write_file_atomically(item.path(), content);
    }
  }

  std::vector<fs::path> memory_;
  const std::vector<Override> in_memory_{{"checkpoint.memory_interval", "1"},
                                         {"checkpoint.mode", "sync"},
                                         {"checkpoint.interval", "4"}};
};

// Killed in the line of step 4, before the checkpoint of that step: memory has step 3.
TEST_F(PlacesTest, ACrashedRunGoesOnFromMemoryWithTheSameBits) {
  run(config("whole"), 2);
  crash(config("a", in_memory_), 2, 4);
  EXPECT_THAT(steps_in(memory_.front() / "checkpoints"), ElementsAre("step-000003"));
  EXPECT_FALSE(fs::exists(folder_ / "a" / "checkpoints"));
  const auto notes = notes_of(config("a", in_memory_));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("checkpoint in memory: step 3, "),
                                    HasSubstr(" s old: used"))));
  expect_same("a", "whole", 0, {"loss", "grad_norm"});
  EXPECT_FALSE(fs::exists(memory_.front()));  // the run has ended well
}

TEST_F(PlacesTest, AnotherNumberOfRanksGoesOnFromMemory) {
  run(config("whole", {{"train.precision", "fp64"}}), 2);
  auto options = in_memory_;
  options.emplace_back("train.precision", "fp64");
  crash(config("a", options), 2, 4);
  EXPECT_THAT(notes_of(config("a", options), 1), Contains(HasSubstr("step 3")));
  expect_same("a", "whole", 1e-10, {"loss", "grad_norm"});
}

// What survived one crash may not survive the next: it is in the run's folder at once.
TEST_F(PlacesTest, ARunFromMemorySavesFirst) {
  crash(config("a", in_memory_), 2, 4);
  run(config("a", in_memory_), 2, 5);
  EXPECT_THAT(steps_in(folder_ / "a" / "checkpoints"), Contains("step-000003"));
}

TEST_F(PlacesTest, DamagedMemoryIsLeftOutAndTheFolderUsed) {
  run(config("whole"), 2);
  auto options = in_memory_;
  options[2].second = "2";
  crash(config("a", options), 2, 4);
  damage_memory("step-000003");
  const auto notes = notes_of(config("a", options));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("DAMAGED: "), HasSubstr("step-000003"))));
  expect_same("a", "whole", 0, {"loss", "grad_norm"});
}

// What a damaged checkpoint leaves in the tensors does not stay there.
TEST_F(PlacesTest, WithDamagedMemoryAndNoOtherCheckpointTheRunBeginsAnew) {
  run(config("whole"), 2);
  crash(config("a", in_memory_), 2, 4);
  damage_memory("step-000003");
  EXPECT_THAT(notes_of(config("a", in_memory_)),
              Contains(HasSubstr("before its first checkpoint: it begins again at step 1")));
  expect_same("a", "whole", 0, {"loss", "grad_norm"});
}

TEST_F(PlacesTest, TheLocalFolderHasTheNewestAndTheRunsFolderAll) {
  run(config("whole"), 2);
  const fs::path local = folder_ / "fast";
  const std::vector<Override> options{{"checkpoint.local", local.string()}};
  run(config("a", options), 2);
  expect_same("a", "whole", 0, {"loss", "grad_norm"});
  const fs::path root = fs::directory_iterator(local)->path();
  EXPECT_THAT(steps_in(root), ElementsAre("step-000006"));
  EXPECT_THAT(steps_in(folder_ / "a" / "checkpoints"),
              ElementsAre("step-000002", "step-000004", "step-000006"));
  EXPECT_TRUE(checkpoint::verify(root / "step-000006").problems.empty());
  const auto notes = notes_of(config("a", {options[0], {"train.steps", "8"}}));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("checkpoint in local: step 6"), HasSubstr("used"))));
  EXPECT_THAT(notes, Contains(HasSubstr("step 6, 0 s old: slower to read")));
  // Another run does not take it for its own.
  EXPECT_THAT(notes_of(config("b", options)), Not(Contains(HasSubstr("checkpoint in local"))));
}

// What a run has in memory stays when a later start is refused.
TEST_F(PlacesTest, ARefusedStartKeepsWhatIsInMemory) {
  crash(config("a", in_memory_), 2, 4);
  auto options = in_memory_;
  options.emplace_back("checkpoint.replicas", "1");
  EXPECT_THROW(run(config("a", options), 2), ConfigError);
  options = in_memory_;
  options.emplace_back("train.seed", "7");
  EXPECT_THROW(run(config("a", options), 2), ConfigError);
  EXPECT_THAT(steps_in(memory_.front() / "checkpoints"), ElementsAre("step-000003"));
}

// Also of a run that has nothing more to save.
TEST_F(PlacesTest, WhatAnInterruptedSaveLeftIsRemovedAtTheStart) {
  const fs::path local = folder_ / "fast";
  const auto ended = config("a", {{"checkpoint.local", local.string()}});
  run(ended, 2);
  const std::vector<fs::path> roots{folder_ / "a" / "checkpoints",
                                    fs::directory_iterator(local)->path()};
  for (const fs::path& root : roots) {
    fs::create_directory(root / ".step-000001.removed");
    fs::create_directory(root / ".step-000007.tmp");
  }
  run(ended, 2);
  for (const fs::path& root : roots) {
    for (const fs::directory_entry& item : fs::directory_iterator(root))
      EXPECT_FALSE(item.path().filename().string().starts_with(".")) << item.path();
  }
}

TEST_F(PlacesTest, ReplicasNeedHostsAndMemory) {
  EXPECT_THAT(
      harness::message_of<ConfigError>([&] {
        run(config("a", {{"checkpoint.memory_interval", "1"}, {"checkpoint.replicas", "1"}}), 2);
      }),
      AllOf(HasSubstr("checkpoint.replicas is 1"), HasSubstr("on 1 host")));
  memory_.push_back(memory_folder(mark_run(folder_ / "a")));
  EXPECT_THAT(harness::message_of<ConfigError>([&] {
                run(config("b", {{"checkpoint.replicas", "1"}}), 2);
              }),
              HasSubstr("set checkpoint.memory_interval too"));
}

}  // namespace
}  // namespace trireme::train
