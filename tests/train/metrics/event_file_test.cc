#include "trireme/train/metrics/event_file.h"

#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

// Reads the folder's events with TensorBoard itself and prints "tag step value" lines.
constexpr const char* kReader = R"(
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
for tag in sorted(events.Tags()["scalars"]):
    for event in events.Scalars(tag):
        print(tag, event.step, event.value)
)";

std::string read_with_tensorboard(const std::filesystem::path& folder,
                                  const std::filesystem::path& scratch) {
  std::ofstream(scratch / "read.py") << kReader;
  const std::string command = concat(
      "'", TRIREME_TEST_PYTHON, "' '", (scratch / "read.py").string(), "' '", folder.string(),
      "' > '", (scratch / "out").string(), "' 2> '", (scratch / "errors").string(), "'");
  if (std::system(command.c_str()) != 0) return "failed: " + read_file(scratch / "errors");
  return read_file(scratch / "out");
}

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
  EXPECT_EQ(read_with_tensorboard(folder / "tensorboard", folder.path()),
            "loss 1 2.5\nloss 2 -1.75\nloss 3 0.5\nrate 1 0.25\n");
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
