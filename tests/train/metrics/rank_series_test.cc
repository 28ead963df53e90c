#include "trireme/train/metrics/rank_series.h"

#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/train/metrics/series_samples.h"
#include "trireme/train/metrics/series_writer.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// A run of so many steps, in a block for each two of them.
void write_steps(const fs::path& run, int64_t last_kept, int64_t last, int64_t epoch = 1) {
  SeriesWriter writer({.run_folder = run, .last_step = last_kept, .epoch = epoch});
  for (int64_t step = last_kept + 1; step <= last; ++step) {
    writer.add(step, shape_of_series(), row_at(step, shape_of_series()));
    if (step % 2 == 0) writer.flush();
  }
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put_bytes(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

// What was read is right: rows that were written, in their order.
void expect_right(const Collected& found, const std::string& what) {
  int64_t last = 0;
  for (const SeriesBlock& block : found.blocks) {
    ASSERT_EQ(block.shape, shape_of_series()) << what;
    for (size_t i = 0; i < block.steps.size(); ++i) {
      ASSERT_GT(block.steps[i], last) << what;
      last = block.steps[i];
      const auto row = block.values.begin() + static_cast<std::ptrdiff_t>(i * block.row_size());
      ASSERT_EQ(std::vector<float>(row, row + static_cast<std::ptrdiff_t>(block.row_size())),
                row_at(last, block.shape))
          << what;
    }
  }
}

TEST(SeriesReader, FollowsAFileFromBeforeItExists) {
  const harness::TemporaryFolder folder;
  SeriesReader reader(folder.path() / kSeriesFolder);
  Collected found;
  EXPECT_FALSE(found.update(reader));
  SeriesWriter writer({.run_folder = folder.path()});
  const auto add = [&](int64_t step) {
    writer.add(step, shape_of_series(), row_at(step, shape_of_series()));
    writer.flush();
  };
  add(1);
  EXPECT_FALSE(found.update(reader));
  EXPECT_EQ(found.steps(), (std::vector<int64_t>{1}));
  add(2);
  writer.add({{.step = 2, .axis = "data", .waiter = 1, .awaited = 0, .seconds = 2}});
  add(3);
  EXPECT_FALSE(found.update(reader));
  EXPECT_EQ(found.steps(), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(found.waits.size(), 1U);
  EXPECT_FALSE(found.update(reader));
  EXPECT_EQ(found.steps().size(), 3U);
  expect_right(found, "followed");
}

TEST(SeriesReader, SaysThatAResumeHasCutWhatItRead) {
  const harness::TemporaryFolder folder;
  write_steps(folder.path(), 0, 10);
  SeriesReader reader(folder.path() / kSeriesFolder);
  Collected found;
  EXPECT_FALSE(found.update(reader));
  EXPECT_EQ(found.steps().back(), 10);
  write_steps(folder.path(), 7, 8, /*epoch=*/2);
  EXPECT_TRUE(found.update(reader));
  EXPECT_TRUE(found.blocks.empty());
  EXPECT_FALSE(found.update(reader));
  EXPECT_EQ(found.steps(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(found.blocks.back().epoch, 2);
  fs::remove_all(folder.path() / kSeriesFolder);
  EXPECT_TRUE(found.update(reader));
  EXPECT_FALSE(found.update(reader));
}

TEST(SeriesReader, TakesAFileThatIsSomethingElse) {
  const harness::TemporaryFolder folder;
  const fs::path path = folder.path() / kSeriesFolder / kSeriesName;
  SeriesReader reader(folder.path() / kSeriesFolder);
  Collected found;
  fs::create_directories(path);  // a folder at its place
  EXPECT_FALSE(found.update(reader));
  fs::remove(path);
  put_bytes(path, std::string(300'000, 'x'));
  EXPECT_FALSE(found.update(reader));
  EXPECT_TRUE(found.blocks.empty());
  EXPECT_EQ(reader.num_dropped(), 1);
  put_bytes(path, "");
  EXPECT_TRUE(found.update(reader));
}

TEST(SeriesReader, TenThousandCutsAtRandomBytesGiveWhatIsRight) {
  const harness::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  fs::create_directories(run);
  write_steps(run, 0, 40);
  const std::string whole = bytes_of(run / kSeriesFolder / kSeriesName);
  const fs::path copy = folder.path() / "copy";
  std::mt19937_64 random(1);
  std::set<size_t> lengths;
  for (int i = 0; i < 10'000; ++i) {
    const size_t size = random() % (whole.size() + 1);
    put_bytes(copy / kSeriesFolder / kSeriesName, whole.substr(0, size));
    const Collected found = read_series(copy);
    expect_right(found, "cut at " + std::to_string(size));
    // As many whole blocks as fit: all of a size are alike but for the steps.
    const size_t expected = size / (whole.size() / 20);
    ASSERT_EQ(found.blocks.size(), expected) << "cut at " << size;
    lengths.insert(found.blocks.size());
  }
  EXPECT_EQ(lengths.size(), 20U + (lengths.contains(20) ? 1 : 0));
}

}  // namespace
}  // namespace trireme::train
