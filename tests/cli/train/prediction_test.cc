#include "trireme/cli/train/automatic_layout.h"

#include <fstream>

#include <gmock/gmock.h>

#include "tests/harness/ranks.h"
#include "tests/train/text_run.h"
#include "trireme/base/file/file.h"

namespace trireme::cli {
namespace {

using testing::HasSubstr;

class PredictionTest : public train::TextRun {
 protected:
  // A run of so many steps of a tenth of a second each, and what rank 0 of two is told of it.
  std::string told(const std::string& cluster, int num_steps) {
    train::RunConfig run = config("run", {{"parallel.cluster", cluster}});
    train::resolve(run, 2);
    run.task->open(/*evaluates=*/false);
    std::string line;
    harness::run_ranks(2, [&](comm::Communicator& world) {
      RunRecord record;
      if (world.rank() == 0) record.begin(run);
      for (int step = 1; step <= num_steps; ++step) {
        record.add({.step = step, .step_seconds = 0.1, .peak_rss_bytes = 1 << 28});
      }
      const std::string own = compare_with_prediction(run, record, world);
      if (world.rank() == 0) line = own;
      if (world.rank() != 0) EXPECT_EQ(own, "");
    });
    return line;
  }
};

TEST_F(PredictionTest, StandsBesideTheMedianStep) {
  const std::string cluster = folder_ / "cluster.toml";
  OutputFile(cluster).write("[cluster]\ndevice = \"cpu\"\ndevices_per_node = 2\n");
  EXPECT_THAT(told(cluster, 10), HasSubstr("measured 100.00 ms a step, predicted "));
}

TEST_F(PredictionTest, SaysNothingOfShortRunsAndWhenNotWanted) {
  EXPECT_EQ(told("", 10), "");  // a second is not worth measuring the ranks
  EXPECT_EQ(told("none", 1000), "");
  EXPECT_EQ(told("cluster.toml", 3), "");
}

TEST_F(PredictionTest, AClusterThatCannotBeReadEndsNoFinishedRun) {
  EXPECT_THAT(told("gone.toml", 10), HasSubstr("no prediction: gone.toml does not exist"));
}

}  // namespace
}  // namespace trireme::cli
