#include "trireme/train/metrics/series_writer.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/file_size_limit.h"
#include "tests/harness/temporary_folder.h"
#include "tests/train/metrics/series_samples.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kNever{1000};

void add_row(SeriesWriter& writer, int64_t step, const SeriesShape& shape = shape_of_series()) {
  writer.add(step, shape, row_at(step, shape));
}

TEST(SeriesWriter, WritesAtTheLatestWhenItsPatienceEnds) {
  const harness::TemporaryFolder folder;
  SeriesWriter patient({.run_folder = folder.path(), .patience = kNever});
  add_row(patient, 1);
  EXPECT_TRUE(read_series(folder.path()).blocks.empty());
  const harness::TemporaryFolder other;
  SeriesWriter prompt({.run_folder = other.path(), .patience = std::chrono::milliseconds(0)});
  add_row(prompt, 1);
  EXPECT_EQ(read_series(other.path()).steps(), (std::vector<int64_t>{1}));
}

TEST(SeriesWriter, WritesABlockWhenItIsFullOrItsShapeChanges) {
  const harness::TemporaryFolder folder;
  SeriesWriter writer({.run_folder = folder.path(), .patience = kNever});
  for (int64_t step = 1; step <= 300; ++step) add_row(writer, step);
  ASSERT_EQ(read_series(folder.path()).blocks.size(), 1U);
  EXPECT_EQ(read_series(folder.path()).blocks[0].steps.size(), kBlockSteps);
  add_row(writer, 301, shape_of_series(3));
  EXPECT_EQ(read_series(folder.path()).steps().back(), 300);
  writer.flush();
  const Collected found = read_series(folder.path());
  EXPECT_EQ(found.blocks.back().shape.num_ranks, 3);
  EXPECT_EQ(found.blocks.back().values, row_at(301, shape_of_series(3)));
}

TEST(SeriesWriter, LeavesOutStepsThatGoBackAndRowsThatAreTooLarge) {
  const harness::TemporaryFolder folder;
  {
    SeriesWriter writer({.run_folder = folder.path(), .last_step = 4});
    add_row(writer, 4);
    add_row(writer, 5);
    add_row(writer, 5);
    add_row(writer, 6, shape_of_series(kMostRowBytes / (3 * sizeof(float)) + 1));
    EXPECT_FALSE(writer.take_problem());
  }
  EXPECT_EQ(read_series(folder.path()).steps(), (std::vector<int64_t>{5}));
}

TEST(SeriesWriter, AResumeCutsWhatLiesPastItsCheckpointAndATornTail) {
  const harness::TemporaryFolder folder;
  {
    SeriesWriter writer({.run_folder = folder.path(), .epoch = 1});
    for (int64_t step = 1; step <= 9; ++step) add_row(writer, step);
    writer.add({{.step = 5, .axis = "data", .waiter = 1, .awaited = 0, .seconds = 1},
                {.step = 9, .axis = "data", .waiter = 1, .awaited = 0, .seconds = 1}});
  }
  std::ofstream(folder.path() / kSeriesFolder / kSeriesName, std::ios::app) << "TRISERI1 torn";
  {
    SeriesWriter writer({.run_folder = folder.path(), .last_step = 6, .epoch = 2});
    add_row(writer, 7);
  }
  const Collected found = read_series(folder.path());
  EXPECT_EQ(found.steps(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(found.blocks.front().epoch, 1);
  EXPECT_EQ(found.blocks.back().epoch, 2);
  ASSERT_EQ(found.waits.size(), 1U);
  EXPECT_EQ(found.waits[0].step, 5);
}

TEST(SeriesWriter, ThinsOldStepsToTheSmallestMeanAndLargestOfSixteen) {
  const harness::TemporaryFolder folder;
  const SeriesShape shape{.num_ranks = 1, .columns = {"step_seconds", "temperature"}};
  constexpr int64_t kLast = 6000;
  constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
  {
    SeriesWriter writer({.run_folder = folder.path(), .patience = kNever});
    for (int64_t step = 1; step <= kLast; ++step) {
      const std::vector<float> row = {step == 5 ? 1000.0F : static_cast<float>(step), kUnknown};
      writer.add(step, shape, row);
    }
  }
  const Collected found = read_series(folder.path());
  const std::vector<int64_t> groups = found.steps(/*is_thinned=*/true);
  const std::vector<int64_t> full = found.steps();
  ASSERT_FALSE(groups.empty());
  EXPECT_EQ(groups[1], 17);
  EXPECT_EQ(full.front(), groups.back() + kThinnedSteps);
  EXPECT_EQ(full.back(), kLast);
  EXPECT_EQ(static_cast<int64_t>(full.size()), kLast - full.front() + 1);
  EXPECT_GE(static_cast<int64_t>(full.size()), kFullSteps);
  const SeriesBlock& first = found.blocks.front();
  ASSERT_TRUE(first.is_thinned);
  EXPECT_EQ(first.values[0], 1);
  EXPECT_TRUE(std::isnan(first.values[1]));
  EXPECT_EQ(first.values[2], (16 * 17 / 2 - 5 + 1000) / 16.0F);
  EXPECT_TRUE(std::isnan(first.values[3]));
  EXPECT_EQ(first.values[4], 1000);
  // A group that the checkpoint lies in goes whole.
  { SeriesWriter writer({.run_folder = folder.path(), .last_step = 40}); }
  EXPECT_EQ(read_series(folder.path()).steps(true), (std::vector<int64_t>{1, 17}));
}

TEST(SeriesWriter, LeavesTheOldestOutOfAFileThatIsTooLarge) {
  const harness::TemporaryFolder folder;
  constexpr uint64_t kMost = 200'000;
  {
    SeriesWriter writer({.run_folder = folder.path(), .patience = kNever, .most_bytes = kMost});
    for (int64_t step = 1; step <= 20'000; ++step) add_row(writer, step);
  }
  const Collected found = read_series(folder.path());
  EXPECT_LE(fs::file_size(folder.path() / kSeriesFolder / kSeriesName), kMost / 8 * 9 + 10'000);
  EXPECT_GT(found.steps(true).front(), 1);
  EXPECT_EQ(found.steps().back(), 20'000);
}

TEST(SeriesWriter, MakesARemovedFileAgainAndLeavesALaterOneAlone) {
  const harness::TemporaryFolder folder;
  SeriesWriter writer({.run_folder = folder.path(), .patience = kNever});
  add_row(writer, 1);
  writer.flush();
  fs::remove_all(folder.path() / kSeriesFolder);
  add_row(writer, 2);
  writer.flush();
  EXPECT_EQ(read_series(folder.path()).steps(), (std::vector<int64_t>{2}));
  SeriesWriter later({.run_folder = folder.path(), .last_step = 2, .epoch = 2});
  add_row(writer, 3);
  writer.flush();
  EXPECT_EQ(read_series(folder.path()).steps(), (std::vector<int64_t>{2}));
  EXPECT_FALSE(writer.take_problem());
}

TEST(SeriesWriter, TriesARewriteThatFailsMoreAndMoreSeldom) {
  const harness::TemporaryFolder folder;
  const fs::path obstacle = folder.path() / kSeriesFolder / (std::string(kSeriesName) + ".next");
  fs::create_directories(obstacle / "held");
  SeriesWriter writer({.run_folder = folder.path(), .patience = kNever});
  EXPECT_TRUE(writer.take_problem());
  const auto write_step = [&](int64_t step) {
    add_row(writer, step);
    writer.flush();
  };
  write_step(1);  // the second failure
  fs::remove_all(obstacle);
  write_step(2);
  write_step(3);
  EXPECT_TRUE(read_series(folder.path()).blocks.empty());
  write_step(4);
  EXPECT_EQ(read_series(folder.path()).steps(), (std::vector<int64_t>{4}));
  EXPECT_FALSE(writer.take_problem());  // told once
}

TEST(SeriesWriter, ALargeFileIsNotRewrittenBeforeItHasGrown) {
  const harness::TemporaryFolder folder;
  SeriesWriter writer({.run_folder = folder.path(), .patience = kNever});
  int64_t step = 0;
  const auto add_until = [&](int64_t last) {
    while (step < last) add_row(writer, ++step);
    writer.flush();
  };
  const auto num_full = [&] { return read_series(folder.path()).steps().size(); };
  add_until(5121);
  EXPECT_EQ(num_full(), 4097U);  // the groups of 16 are whole
  const WaitRecord wait{.step = 1, .axis = "data", .waiter = 1, .awaited = 0, .seconds = 1};
  for (int i = 0; i < 10; ++i) writer.add(std::vector<WaitRecord>(kMostWaits, wait));
  add_until(6200);
  const size_t after_growth = num_full();
  add_until(7300);
  EXPECT_EQ(num_full(), after_growth + 1100);  // which are no eighth of the waits
}

TEST(SeriesWriter, AFullDiskCostsRowsAndNoBlockBeforeOrAfter) {
  const harness::TemporaryFolder folder;
  SeriesWriter writer({.run_folder = folder.path(), .patience = kNever});
  add_row(writer, 1);
  writer.flush();
  const auto size = fs::file_size(folder.path() / kSeriesFolder / kSeriesName);
  {
    const harness::FileSizeLimit limit(size + 50);
    add_row(writer, 2);
    writer.flush();
    ASSERT_TRUE(writer.take_problem());
    add_row(writer, 3);
    writer.flush();
    EXPECT_FALSE(writer.take_problem());  // told once
  }
  add_row(writer, 4);
  writer.flush();
  EXPECT_EQ(read_series(folder.path()).steps(), (std::vector<int64_t>{1, 4}));
}

}  // namespace
}  // namespace trireme::train
