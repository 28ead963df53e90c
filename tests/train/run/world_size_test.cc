#include "trireme/train/parallel/run_layout.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/text_run.h"
#include "trireme/train/run/inputs.h"

namespace trireme::train {
namespace {

class WorldSize : public TextRun {
 protected:
  int largest(std::vector<Override> overrides, int available) const {
    return largest_world(config("run", std::move(overrides)), available);
  }
};

TEST_F(WorldSize, IsAllThatTheBatchDividesInto) {
  const std::vector<Override> batch = {{"train.global_batch", "12"}, {"train.micro_batch", "1"}};
  EXPECT_EQ(largest(batch, 1), 1);
  EXPECT_EQ(largest(batch, 4), 4);
  EXPECT_EQ(largest(batch, 5), 4);
  EXPECT_EQ(largest(batch, 11), 6);
  EXPECT_EQ(largest(batch, 12), 12);
}

TEST_F(WorldSize, OnlyTheDataAxisChanges) {
  const std::vector<Override> tensor = {
      {"train.global_batch", "8"}, {"train.micro_batch", "1"}, {"parallel.tensor", "2"}};
  EXPECT_EQ(largest(tensor, 2), 2);
  EXPECT_EQ(largest(tensor, 3), 2);
  EXPECT_EQ(largest(tensor, 7), 4);
  EXPECT_EQ(largest(tensor, 8), 8);
}

TEST_F(WorldSize, IgnoresAFixedNumberOfDataRanks) {
  EXPECT_EQ(
      largest({{"train.global_batch", "8"}, {"train.micro_batch", "1"}, {"parallel.data", "4"}}, 2),
      2);
}

TEST_F(WorldSize, ReproducibleRunsTakePowersOfTwo) {
  EXPECT_EQ(largest({{"train.global_batch", "24"},
                     {"train.micro_batch", "3"},
                     {"train.reproducible", "true"}},
                    7),
            4);
}

TEST_F(WorldSize, AFixedNumberOfShardsDividesTheDataRanks) {
  EXPECT_EQ(largest({{"train.global_batch", "12"},
                     {"train.micro_batch", "1"},
                     {"parallel.zero", "3"},
                     {"parallel.shard", "4"}},
                    7),
            4);
}

TEST_F(WorldSize, SaysWhyNoneFits) {
  const std::string error = harness::message_of([&] { largest({{"parallel.tensor", "2"}}, 1); });
  EXPECT_NE(error.find("no number of ranks up to the 1"), std::string::npos) << error;
  EXPECT_NE(error.find("tensor"), std::string::npos) << error;
}

}  // namespace
}  // namespace trireme::train
