#include "trireme/train/metrics/event_file.h"

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
    EventFile events(folder / "tensorboard");
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
