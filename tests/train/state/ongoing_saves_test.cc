#include "trireme/train/state/ongoing_saves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/file_size_limit.h"
#include "tests/harness/messages.h"
#include "tests/train/text_run.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"

namespace trireme::train {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using SavesTest = TextRun;

TEST_F(SavesTest, BothModesSaveTheSame) {
  for (const char* mode : {"sync", "async"}) {
    for (const char* compression : {"none", "zstd"}) {
      const std::string name = concat(mode, "-", compression);
      run(config(name, {{"checkpoint.mode", mode}, {"checkpoint.compression", compression}}), 2);
      expect_same(name, "sync-none", 0, {"loss", "grad_norm"});
      const auto saved = checkpoint::list(folder_ / name / "checkpoints");
      ASSERT_THAT(saved, SizeIs(3));
      const auto expected =
          checkpoint::load_global(folder_ / "sync-none" / "checkpoints" / saved.back().filename());
      const auto actual = checkpoint::load_global(saved.back());
      ASSERT_EQ(actual.size(), expected.size());
      for (const auto& [key, tensor] : expected) EXPECT_TRUE(actual.at(key).equal(tensor)) << key;
    }
  }
}

TEST_F(SavesTest, TheNextLineTellsHowLongTrainingWaited) {
  run(config("a"), 2);
  size_t told = 0;
  for (const auto& line : metrics("a")) told += line.contains("checkpoint_stall_seconds") ? 1 : 0;
  EXPECT_GE(told, 1u);
}

TEST_F(SavesTest, AnErrorOfTheDiskEndsTheRunOrIsAWarning) {
  for (const char* mode : {"sync", "async"}) {
    const std::string stopped = concat("stopped-", mode), warned = concat("warned-", mode);
    {
      const harness::FileSizeLimit no_room(16 << 10);
      EXPECT_THAT(harness::message_of<ConfigError>([&] {
                    run(config(stopped, {{"checkpoint.mode", mode}}), 2);
                  }),
                  HasSubstr("checkpoints"));
      run(config(warned, {{"checkpoint.mode", mode}, {"checkpoint.on_error", "warn"}}), 2);
    }
    EXPECT_THAT(metrics(warned), SizeIs(6));
    EXPECT_THAT(findings_, Contains(HasSubstr("CHECKPOINT NOT SAVED")).Times(3));
    // In the background the second may end after the last line.
    EXPECT_GE(metrics(warned).back().value("failed_checkpoints", 0.0), 1) << mode;
  }
}

}  // namespace
}  // namespace trireme::train
