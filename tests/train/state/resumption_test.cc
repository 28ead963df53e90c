#include "trireme/train/state/resume.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/text_run.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/checkpoint.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ResumptionTest : public TextRun {
 protected:
  fs::path step(const std::string& run, int number) const {
    return folder_ / run / "checkpoints" / concat("step-00000", number);
  }
  // Changes the last byte, which is a tensor's.
  static void damage(const fs::path& folder) {
    const fs::path path = folder / "rank-000-of-002.safetensors";
    std::string content = read_file(path);
    content.back() = static_cast<char>(content.back() ^ 1);
    std::ofstream(path, std::ios::binary) << content;
  }
};

// Whatever is damaged, the run goes on from the newest one that is whole, says so, and computes
// what it would have computed.
TEST_F(ResumptionTest, TakesTheNewestCheckpointThatIsWhole) {
  run(config("whole"), 2);
  for (const auto& [name, damaged] :
       {std::pair<std::string, std::vector<int>>{"one", {6}}, {"two", {4, 6}}, {"older", {2}}}) {
    run(config(name, {{"train.steps", "6"}}), 2);
    for (const int number : damaged) damage(step(name, number));
    const auto notes = notes_of(config(name, {{"train.steps", "8"}}));
    size_t told = 0;
    for (const std::string& note : notes) told += note.starts_with("DAMAGED: ") ? 1 : 0;
    EXPECT_EQ(told, damaged.back() == 6 ? damaged.size() : 0) << name;
    const auto lines = metrics(name);
    ASSERT_EQ(lines.size(), 8u) << name;
    const auto expected = metrics("whole");
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(lines[i]["step"], expected[i]["step"]) << name;
    EXPECT_TRUE(checkpoint::verify(step(name, 8)).problems.empty());
  }
}

TEST_F(ResumptionTest, AManifestThatCannotBeReadIsLeftOutToo) {
  run(config("a"), 2);
  std::ofstream(step("a", 6) / "manifest.json") << "{}";
  const auto notes = notes_of(config("a"));
  ASSERT_FALSE(notes.empty());
  EXPECT_THAT(notes.front(), AllOf(HasSubstr("DAMAGED: "), HasSubstr("step-000006/manifest.json"),
                                   HasSubstr("an earlier checkpoint is used")));
}

TEST_F(ResumptionTest, WhenNoneIsWholeTheRunDoesNotBeginAnew) {
  run(config("a"), 2);
  for (const int number : {2, 4, 6}) damage(step("a", number));
  EXPECT_THAT(
      harness::message_of<CheckpointError>([&] { run(config("a"), 2); }),
      AllOf(HasSubstr("step-000006"), HasSubstr("all earlier checkpoints are damaged too")));
}

// It is whole, so no older one is taken in its place.
TEST_F(ResumptionTest, ACheckpointThatDoesNotFitIsAnError) {
  run(config("a", {{"optimizer.name", "adamw"}}), 2);
  EXPECT_THAT(
      harness::message_of<CheckpointError>([&] {
        run(config("a", {{"optimizer.name", "lion"}, {"resume.allow", "optimizer.name"}}), 2);
      }),
      AllOf(HasSubstr("step-000006"), HasSubstr("does not fit")));
}

}  // namespace
}  // namespace trireme::train
