#include "trireme/watch/series/series_view.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"
#include "trireme/train/metrics/rank_series.h"

namespace trireme::watch {
namespace {

// A block of a mebibyte with 16 steps.
std::string large_block(int64_t index) {
  train::SeriesBlock block{.shape = {.num_ranks = 1 << 14, .columns = {"own_seconds"}}};
  for (int64_t step = 1; step <= 16; ++step) block.steps.push_back(16 * index + step);
  block.values.assign(size_t{16} << 14, static_cast<float>(index));
  return train::to_bytes(block);
}

TEST(SeriesView, KeepsTheBlocksAndWaitsOfARun) {
  const harness::TemporaryFolder folder;
  SeriesView view(folder.path());
  view.update();
  EXPECT_EQ(view.ranks().num_ranks(), 0);
  const train::SeriesBlock block{.shape = {.num_ranks = 2, .columns = {"own_seconds"}},
                                 .steps = {1, 2},
                                 .values = {0.5F, 0.25F, 1, 2}};
  const train::WaitBlock waits{
      .records = {{.step = 2, .axis = "data", .waiter = 0, .awaited = 1, .seconds = 3}}};
  const auto path = folder / train::kSeriesFolder / train::kSeriesName;
  std::filesystem::create_directories(path.parent_path());
  write_file_atomically(path, train::to_bytes(block) + train::to_bytes(waits));
  view.update();
  EXPECT_EQ(view.ranks().values_at("own_seconds", 2)->values, (std::vector<float>{1, 2}));
  EXPECT_EQ(view.waits().between(0, 9, 9)[0].seconds, 3);
  // Another file in its place: what was read no longer counts.
  write_file_atomically(path, train::to_bytes(waits));
  EXPECT_TRUE(view.update());
  EXPECT_FALSE(view.update());
  EXPECT_EQ(view.ranks().num_ranks(), 0);
  EXPECT_EQ(view.waits().between(0, 9, 9).size(), 1u);
}

TEST(SeriesView, TheNewestStepsOfALongFileAreThereAtOnce) {
  const harness::TemporaryFolder folder;
  const auto path = folder / train::kSeriesFolder / train::kSeriesName;
  std::filesystem::create_directories(path.parent_path());
  {
    OutputFile file(path);
    for (int64_t index = 0; index < 24; ++index) file.write(large_block(index));
  }
  SeriesView view(folder.path());
  ASSERT_TRUE(view.update());
  EXPECT_EQ(view.ranks().last_step(), 384);
  EXPECT_EQ(view.ranks().values_at("own_seconds", 1)->step, 145);  // in the last 16 MiB
  while (view.update()) {
  }
  EXPECT_EQ(view.ranks().last_step(), 384);
  EXPECT_EQ(view.ranks().values_at("own_seconds", 1)->step, 1);
}

TEST(SeriesView, WhatCameLateDoesNotHideWhatWasRead) {
  const harness::TemporaryFolder folder;
  const auto path = folder / train::kSeriesFolder / train::kSeriesName;
  std::filesystem::create_directories(path.parent_path());
  OutputFile(path).write(large_block(0));
  SeriesView view(folder.path());
  EXPECT_FALSE(view.update());
  {
    OutputFile file(path, /*append=*/true);
    for (int64_t index = 1; index < 24; ++index) file.write(large_block(index));
  }
  EXPECT_TRUE(view.update());
  EXPECT_EQ(view.ranks().values_at("own_seconds", 1)->step, 1);
}

}  // namespace
}  // namespace trireme::watch
