#include "trireme/train/metrics/tensorboard_events.h"

#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/train/tensorboard.h"

namespace trireme::train {
namespace {

TEST(EventFile, CrcOfTheStandardCheckString) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(EventFile, TensorBoardReadsWhatWasWritten) {
  const harness::TemporaryFolder folder;
  {
    EventFile events(folder / "tensorboard");
    events.write(1, std::vector<Scalar>{{"loss", 2.5}, {"rate", 0.25}});
    events.write(2, std::vector<Scalar>{{"loss", -1.75}});
  }
  {
    // A resumed run adds a file of its own.
    EventFile events(folder / "tensorboard", 3);
    events.write(3, std::vector<Scalar>{{"loss", 0.5}});
  }
  EXPECT_EQ(
      read_with_tensorboard(folder / "tensorboard").at("scalars"),
      nlohmann::json::parse(R"({"loss": [[1, 2.5], [2, -1.75], [3, 0.5]], "rate": [[1, 0.25]]})"));
}

TEST(EventFile, TensorBoardReadsHistograms) {
  const harness::TemporaryFolder folder;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  {
    EventFile events(folder / "tensorboard");
    const std::vector<NamedHistogram> histograms = {
        {"weights/a", histogram_of(at::tensor({-0.5, 0.0, 0.25, 0.25, 3.0}))},
        {"weights/none", histogram_of(at::empty({0}))},
        {"gradients/a", histogram_of(at::tensor({1.0, nan}))},
        {"gradients/bad", histogram_of(at::tensor({nan, nan}))}};
    events.write(7, histograms);
  }
  const nlohmann::json events = read_with_tensorboard(folder / "tensorboard");
  EXPECT_EQ(events.at("scalars"),
            nlohmann::json::parse(
                R"({"gradients/a/nonfinite": [[7, 1.0]], "gradients/bad/nonfinite": [[7, 2.0]]})"));
  const nlohmann::json& histograms = events.at("histograms");
  EXPECT_EQ(histograms.size(), 2U);
  const nlohmann::json& a = histograms.at("weights/a").at(0);
  EXPECT_EQ(a.at(0), 7);
  EXPECT_EQ(a.at(1), nlohmann::json::parse("[-0.5, 3.0, 5.0, 3.0, 9.375]"));
  const std::vector<double> limits = a.at(2), counts = a.at(3);
  ASSERT_EQ(limits.size(), counts.size());
  EXPECT_EQ(limits.back(), std::numeric_limits<double>::max());
  std::vector<double> found;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    ASSERT_GT(i, 0U);
    found.push_back(counts[i]);
    for (const double value : {-0.5, 0.0, 0.25, 3.0}) {
      if (limits[i - 1] <= value && value < limits[i]) found.push_back(value);
    }
  }
  EXPECT_EQ(found, (std::vector<double>{1, -0.5, 1, 0.0, 2, 0.25, 1, 3.0}));
}

// As from a host that was paused while another one went on with the run from step 3.
TEST(EventFile, TensorBoardDropsWhatALaterWriterWritesAgain) {
  const harness::TemporaryFolder folder;
  const auto write = [](EventFile& events, int64_t step, double value) {
    events.write(step, std::vector<Scalar>{{"loss", value}});
    events.write(step, std::vector<NamedHistogram>{{"weights", histogram_of(at::tensor({value}))}});
  };
  EventFile paused(folder.path(), 1);
  for (const int step : {1, 2, 3, 4}) write(paused, step, -step);
  EventFile later(folder.path(), 3);
  write(later, 3, 3);
  write(paused, 5, -5);
  write(later, 4, 4);
  write(paused, 6, -6);
  const nlohmann::json events = read_with_tensorboard(folder.path());
  EXPECT_EQ(events.at("scalars").at("loss"),
            nlohmann::json::parse("[[1, -1.0], [2, -2.0], [3, 3.0], [4, 4.0]]"));
  std::vector<int64_t> steps;
  for (const nlohmann::json& each : events.at("histograms").at("weights")) {
    steps.push_back(each.at(0));
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST(EventFile, IsAfterThoseOfAClockThatIsAhead) {
  const harness::TemporaryFolder folder;
  const std::string ahead = event_file_name(std::chrono::seconds(8'000'000'000));
  for (const std::string& name :
       {ahead, std::string("events.out.tfevents.7900000000.host.12.0"),
        std::string("events.out.tfevents.99999999999999999999"), std::string("notes")}) {
    OutputFile(folder / name).write("");
  }
  EventFile events(folder.path());
  std::vector<std::string> after;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const std::string name = entry.path().filename();
    if (name.starts_with("events.out.tfevents.8000000000.000000001")) after.push_back(name);
  }
  ASSERT_EQ(after.size(), 1U);
  EXPECT_LT(ahead, after[0]);
}

TEST(EventFile, NamesAreInTheOrderOfTime) {
  using std::chrono::nanoseconds;
  const nanoseconds second = std::chrono::seconds(1700000000);
  EXPECT_LT(event_file_name(second + nanoseconds(99'999'999)),
            event_file_name(second + nanoseconds(100'000'000)));
  EXPECT_LT(event_file_name(second), event_file_name(second + nanoseconds(1)));
  EXPECT_LT(event_file_name(second + nanoseconds(999'999'999)),
            event_file_name(second + std::chrono::seconds(1)));
}

}  // namespace
}  // namespace trireme::train
