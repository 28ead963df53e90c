#include "trireme/cli/train/automatic_layout.h"

#include <mutex>
#include <set>

#include <gmock/gmock.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/train/text_run.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using train::RunConfig;

class AutomaticLayoutTest : public train::TextRun {
 protected:
  RunConfig automatic(std::vector<train::Override> overrides = {}) const {
    overrides.emplace_back("parallel.auto", "true");
    overrides.emplace_back("parallel.cluster", (folder_ / "cluster.toml").string());
    return config("run", std::move(overrides));
  }
  void describe_devices(const std::string& keys = "") const {
    OutputFile(folder_ / "cluster.toml").write("[cluster]\ndevice = \"cpu\"\n" + keys);
  }
  // What each rank chooses, once.
  static std::set<std::string> choices(const RunConfig& config, int num_ranks) {
    std::mutex mutex;
    std::set<std::string> found;
    harness::run_ranks(num_ranks, [&](comm::Communicator& world) {
      RunConfig own = config;
      const AutomaticLayout layout = choose_layout(own, world);
      EXPECT_FALSE(layout.config.parallel.automatic);
      const std::lock_guard lock(mutex);
      found.insert(layout.line + "\n" + train::to_toml(layout.config));
    });
    return found;
  }
};

TEST_F(AutomaticLayoutTest, IsTheSameOnAllRanksAndForAllOfThem) {
  describe_devices();
  for (int num_ranks = 1; num_ranks <= 4; ++num_ranks) {
    const RunConfig run = automatic({{"train.global_batch", "12"}});
    const std::set<std::string> found = choices(run, num_ranks);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_THAT(*found.begin(), HasSubstr("s a step"));
    EXPECT_THAT(*found.begin(), HasSubstr("auto = false"));
    RunConfig planned = with_any_layout(run, num_ranks);
    train::resolve(planned, num_ranks);
  }
}

TEST_F(AutomaticLayoutTest, OfARunThatHasBegunStays) {
  describe_devices();
  RunConfig begun = config("run", {{"train.micro_batch", "1"}, {"parallel.zero", "2"}});
  train::resolve(begun, 2);
  std::filesystem::create_directories(folder_ / "run");
  OutputFile(folder_ / "run" / train::kConfigName).write(train::to_toml(begun));
  EXPECT_THAT(*choices(automatic(), 2).begin(),
              AllOf(HasSubstr("the layout with which the run has begun"), HasSubstr("zero = 2"),
                    HasSubstr("micro_batch = 1\n")));
  // Another number of ranks needs another one.
  EXPECT_THAT(*choices(automatic(), 4).begin(), HasSubstr("s a step"));
}

TEST_F(AutomaticLayoutTest, AllRanksLearnThatNoneFits) {
  describe_devices("[device]\nmemory_gib = 1e-6\n");
  harness::run_ranks(2, [&](comm::Communicator& world) {
    RunConfig own = automatic();
    EXPECT_THAT(harness::message_of<ConfigError>([&] { choose_layout(own, world); }),
                AllOf(HasSubstr("parallel.auto"), HasSubstr("no layout fits")));
  });
  describe_devices();
  const RunConfig odd = automatic({{"train.global_batch", "7"}, {"model.layers", "1"}});
  EXPECT_THAT(harness::message_of<ConfigError>([&] { with_any_layout(odd, 5); }),
              AllOf(HasSubstr("of the 5 ranks"), HasSubstr("train.global_batch = 7")));
}

TEST_F(AutomaticLayoutTest, ATrainerAloneDoesNotChoose) {
  describe_devices();
  EXPECT_THAT(harness::message_of<ConfigError>([&] { run(automatic(), 1); }),
              HasSubstr("parallel.auto is true"));
}

}  // namespace
}  // namespace trireme::cli
