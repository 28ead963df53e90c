// A disk that is slower than the collectives' timeout, on every way in which ranks wait for each
// other: saves and loads complete, and a peer that dies or stops meanwhile still ends the others.
#include <fstream>
#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/checkpoint/slow_disk.h"
#include "tests/comm/hierarchical/hierarchical_ranks.h"
#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#ifdef TRIREME_HAVE_GLOO
#include "tests/comm/c10d/gloo_ranks.h"
#endif

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kLostRank = 2;
constexpr milliseconds kLong{120'000};

using Statuses = std::vector<harness::ExitStatus>;
using Runner = Statuses (*)(const harness::RankFunction& function, milliseconds timeout);

Statuses on_threads(const harness::RankFunction& function, milliseconds timeout) {
  harness::run_ranks(kRanks, function, {.timeout = timeout});
  return Statuses(kRanks, 0);
}
Statuses on_two_hosts(const harness::RankFunction& function, milliseconds timeout) {
  comm::run_hierarchical_ranks({0, 0, 1}, function, comm::split_outer, {.timeout = timeout});
  return Statuses(kRanks, 0);
}
Statuses on_processes(const harness::RankFunction& function, milliseconds timeout) {
  return harness::fork_ranks(kRanks, function, {.timeout = timeout});
}
#ifdef TRIREME_HAVE_GLOO
Statuses on_gloo(const harness::RankFunction& function, milliseconds timeout) {
  return comm::fork_gloo_ranks(kRanks, function, timeout);
}
#endif

void wait_for(const fs::path& path) {
  for (int i = 0; i < 6000 && !fs::exists(path); ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(fs::exists(path)) << path;
}
void leave(const fs::path& path, const std::string& text = "") { std::ofstream(path) << text; }

class SlowDisk : public ::testing::TestWithParam<std::pair<const char*, Runner>> {
 protected:
  static Statuses run(const harness::RankFunction& function, milliseconds timeout) {
    return GetParam().second(function, timeout);
  }
  harness::TemporaryFolder folder_;
};

TEST_P(SlowDisk, ASaveAndALoadThatTakeLongerThanTheTimeoutComplete) {
  const Statuses ended = run(
      [&](comm::Communicator& world) { save_and_load_slowly(world, folder_.path()); }, kTimeout);
  EXPECT_THAT(ended, ElementsAre(0, 0, 0));
  check_saved(folder_.path());
}

// The slow rank goes on only once another has noticed: one that waited for it would wait for ever.
using SlowDiskOfProcesses = SlowDisk;
TEST_P(SlowDiskOfProcesses, ARankThatDiesMeanwhileEndsTheOthers) {
  const auto function = [&](comm::Communicator& world) {
    int num_accesses = 0;
    const auto before = [&] {
      ++num_accesses;
      if (world.rank() == kSlowRank) {
        leave(folder_ / "slow");
        wait_for(folder_ / "noticed");
        std::this_thread::sleep_for(milliseconds(2000));  // its own thread notices meanwhile
      } else if (world.rank() == kLostRank) {
        wait_for(folder_ / "slow");
        kill(getpid(), SIGKILL);
      }
    };
    std::vector<Entry> entries = entries_of(world, before);
    EXPECT_THROW(save(folder_.path(), 1, entries, "{}", world), CommError);
    if (world.rank() == 0) leave(folder_ / "noticed");
    if (world.rank() == kSlowRank) {
      EXPECT_EQ(num_accesses, 1) << "worked on in vain";
    }
  };
  EXPECT_THAT(run(function, kLong), ElementsAre(0, 0, -SIGKILL));
  EXPECT_EQ(latest(folder_.path()), std::nullopt);
}

std::string name_of(const ::testing::TestParamInfo<SlowDisk::ParamType>& info) {
  return info.param.first;
}
INSTANTIATE_TEST_SUITE_P(Threads, SlowDisk, ::testing::Values(std::pair("thread", &on_threads)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Hierarchical, SlowDisk,
                         ::testing::Values(std::pair("hierarchical", &on_two_hosts)), name_of);
INSTANTIATE_TEST_SUITE_P(Shm, SlowDisk, ::testing::Values(std::pair("shm", &on_processes)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Shm, SlowDiskOfProcesses,
                         ::testing::Values(std::pair("shm", &on_processes)), name_of);
#ifdef TRIREME_HAVE_GLOO
INSTANTIATE_TEST_SUITE_P(Gloo, SlowDisk, ::testing::Values(std::pair("gloo", &on_gloo)), name_of);
INSTANTIATE_TEST_SUITE_P(Gloo, SlowDiskOfProcesses, ::testing::Values(std::pair("gloo", &on_gloo)),
                         name_of);
#endif

// A process that does not run says nothing, however healthy its disk.
TEST(StoppedRank, IsNoticedAfterTheTimeout) {
  const harness::TemporaryFolder folder;
  const auto ended = harness::fork_ranks(
      kRanks,
      [&](comm::Communicator& world) {
        const auto before = [&] {
          if (world.rank() != kLostRank) return;
          leave(folder / "pid", std::to_string(getpid()));
          kill(getpid(), SIGSTOP);
        };
        std::vector<Entry> entries = entries_of(world, before);
        const std::string error =
            harness::message_of<CommError>([&] { save(folder.path(), 1, entries, "{}", world); });
        EXPECT_THAT(error, AllOf(HasSubstr("timed out"), HasSubstr("rank 2")));
        if (world.rank() != 0) return;
        pid_t stopped = 0;
        std::ifstream(folder / "pid") >> stopped;
        if (stopped > 0) kill(stopped, SIGKILL);
      },
      {.timeout = kTimeout});
  EXPECT_THAT(ended, ElementsAre(0, 0, -SIGKILL));
}

// The rank works until all were told of it.
TEST(WaitObserver, RanksAreToldForWhomTheyWait) {
  const harness::TemporaryFolder folder;
  std::atomic<int> num_told = 0;
  harness::run_ranks(kRanks, [&](comm::Communicator& world) {
    const auto before = [&] {
      if (world.rank() != kSlowRank) return;
      while (num_told.load() < kRanks) std::this_thread::sleep_for(milliseconds(10));
    };
    std::vector<Entry> entries = entries_of(world, before);
    bool was_told = false;
    const OnWait on_wait = [&](std::span<const int> ranks, milliseconds waited) {
      EXPECT_THAT(std::vector<int>(ranks.begin(), ranks.end()), ElementsAre(kSlowRank));
      EXPECT_GE(waited.count(), 1000);
      if (!std::exchange(was_told, true)) ++num_told;
    };
    save(folder.path(), 1, entries, "{}", world, {.on_wait = on_wait});
    EXPECT_TRUE(was_told);
  });
}

}  // namespace
}  // namespace trireme::checkpoint
