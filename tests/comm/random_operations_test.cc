// Random operations x groups x delays: on threads (run under ThreadSanitizer too) and on processes
// that are killed at random instants.
#include "tests/comm/random_operations.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/harness/ranks.h"
#include "trireme/comm/shared/segment.h"

namespace trireme::comm {
namespace {

// Another one each run; what a failure prints repeats it.
uint64_t seed() {
  const char* given = std::getenv("TRIREME_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
}

// Between processes, the flag that orders two threads of a rank may be one that another process
// set, which the thread sanitizer cannot see. Ranks as threads run the same operations in its view.
#ifdef __SANITIZE_THREAD__
#define TRIREME_NEEDS_ORDER_BETWEEN_PROCESSES() GTEST_SKIP() << "out of the thread sanitizer's view"
#else
#define TRIREME_NEEDS_ORDER_BETWEEN_PROCESSES()
#endif

class RandomWorlds : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, RandomWorlds, testing::Range(1, 10));

TEST_P(RandomWorlds, OperationsOnThreadsGiveTheScalarModelsBits) {
  const uint64_t chosen = seed();
  SCOPED_TRACE(concat("TRIREME_TEST_SEED=", chosen));
  for (const size_t slot_bytes : {size_t{4} << 10, size_t{512} << 10}) {
    for (const bool zero_copy : {true, false}) {
      GroupOptions options;
      options.slot_bytes = slot_bytes;
      options.zero_copy = zero_copy;
      harness::run_ranks(
          GetParam(), [&](Communicator& world) { RandomOperations(world, chosen).run(60); },
          options);
    }
  }
}

TEST_P(RandomWorlds, OperationsOnProcessesGiveTheScalarModelsBits) {
  TRIREME_NEEDS_ORDER_BETWEEN_PROCESSES();
  const uint64_t chosen = seed();
  SCOPED_TRACE(concat("TRIREME_TEST_SEED=", chosen));
  const auto statuses = harness::fork_ranks(
      GetParam(), [&](Communicator& world) { RandomOperations(world, chosen).run(150); });
  EXPECT_EQ(statuses, std::vector<harness::ExitStatus>(GetParam(), 0));
}

// 10,000 operations. The others of a rank that dies either had finished or get a CommError.
TEST(RandomKills, EndCleanlyEveryTime) {
  TRIREME_NEEDS_ORDER_BETWEEN_PROCESSES();
  constexpr int kRounds = 20;
  constexpr int kOperations = 500;
  constexpr int kRanks = 4;
  constexpr int kLost = 7;  // exit code of a rank that was told
  const uint64_t chosen = seed();
  SCOPED_TRACE(concat("TRIREME_TEST_SEED=", chosen));
  std::mt19937_64 random(chosen);
  int kills = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int victim = static_cast<int>(random() % kRanks);
    const auto delay = std::chrono::microseconds(random() % 400000);
    const uint64_t script = random();
    const auto statuses = harness::fork_ranks(kRanks, [&](Communicator& world) {
      std::thread killer;
      if (world.rank() == victim) {
        killer = std::thread([&] {
          std::this_thread::sleep_for(delay);
          raise(SIGKILL);
        });
      }
      try {
        RandomOperations(world, script).run(kOperations);
      } catch (const CommError&) {
        if (world.rank() == victim) killer.join();
        _exit(kLost);
      }
      if (world.rank() == victim) killer.join();
    });
    kills += statuses[victim] == -SIGKILL ? 1 : 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      const bool is_clean = rank == victim ? statuses[rank] == -SIGKILL
                                           : statuses[rank] == 0 || statuses[rank] == kLost;
      EXPECT_TRUE(is_clean) << "rank " << rank << " ended with " << statuses[rank];
    }
  }
  EXPECT_EQ(kills, kRounds);
  // What a job leaves behind, until the next one starts, carries this process's id.
  sweep_orphans();
  const std::string mine = concat("trireme-test-", getpid(), "-");
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    EXPECT_FALSE(entry.path().filename().string().starts_with(mine)) << entry.path();
}

}  // namespace
}  // namespace trireme::comm
