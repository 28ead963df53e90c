#include "trireme/train/parallel/asked_layout.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/points_run.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

class AskedLayoutTest : public PointsRun {
 protected:
  RunConfig asked(const std::vector<Override>& layout, int num_ranks,
                  const std::vector<Override>& trained = {}) {
    RunConfig run = config("run", trained);
    RunConfig defaults = config("run", {});
    defaults.parallel = {};
    return asked_config(run, std::move(defaults), run.task->clone(), layout, num_ranks);
  }
};

TEST_F(AskedLayoutTest, TakesPrecisionAndSeedFromTheRunAndRanksFromTheCommand) {
  const RunConfig found =
      asked({{"parallel.pipeline", "2"}}, 4,
            {{"train.precision", "fp64"}, {"train.seed", "7"}, {"parallel.zero", "2"}});
  EXPECT_TRUE(found.is_frozen);
  EXPECT_EQ(found.dtype(), at::kDouble);
  EXPECT_EQ(found.train.seed, 7U);
  EXPECT_EQ(found.parallel.pipeline, 2);
  EXPECT_EQ(found.parallel.data, 2);
  EXPECT_EQ(found.parallel.zero, 0) << "the run's layout says nothing";
  for (const int num_ranks : {1, 3, 5}) EXPECT_EQ(asked({}, num_ranks).parallel.data, num_ranks);
}

TEST_F(AskedLayoutTest, OtherKeysAreRefusedWithThoseThatThereAre) {
  const std::vector<std::string> keys = asking_keys();
  EXPECT_THAT(keys, testing::Contains("parallel.tensor"));
  EXPECT_THAT(keys, testing::Not(testing::Contains("parallel.context")));
  for (const char* key : {"parallel.context", "train.steps", "nonsense"}) {
    const std::string message = harness::message_of([&] { asked({{key, "2"}}, 2); });
    EXPECT_THAT(message, testing::HasSubstr(key));
    EXPECT_THAT(message, testing::HasSubstr("parallel.pipeline"));
  }
  EXPECT_THROW(asked({{"parallel.tensor", "2"}}, 2), ConfigError) << "a chain has no plan for it";
}

}  // namespace
}  // namespace trireme::train
