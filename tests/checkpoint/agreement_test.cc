#include "trireme/checkpoint/agreement.h"

#include <atomic>
#include <filesystem>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

TEST(Agreement, EveryRankGetsEveryRanksResult) {
  for (int size = 1; size <= 4; ++size) {
    harness::run_ranks(size, [&](comm::Communicator& world) {
      const auto all =
          gather_or_throw(world, [&](const Peers&) { return std::string(world.rank(), 'x'); });
      ASSERT_EQ(static_cast<int>(all.size()), size);
      for (int rank = 0; rank < size; ++rank) EXPECT_EQ(all[rank], std::string(rank, 'x'));
    });
  }
}

// What a rank throws when rank 1 of 3 does `work`, and its type.
std::pair<std::string, std::string> outcome_of(const std::function<void(int rank)>& work) {
  std::mutex mutex;
  std::set<std::pair<std::string, std::string>> outcomes;
  harness::run_ranks(3, [&](comm::Communicator& world) {
    std::pair<std::string, std::string> outcome;
    try {
      run_or_throw(world, [&](const Peers&) { work(world.rank()); });
    } catch (const ConfigError& error) {
      outcome = {"ConfigError", error.what()};
    } catch (const CheckpointError& error) {
      outcome = {"CheckpointError", error.what()};
    } catch (const InternalError& error) {
      outcome = {"InternalError", error.what()};
    } catch (const Error& error) {
      outcome = {"Error", error.what()};
    }
    // The group is still good.
    EXPECT_EQ(gather_or_throw(world, [](const Peers&) { return std::string("a"); }).size(), 3u);
    const std::lock_guard lock(mutex);
    outcomes.insert(outcome);
  });
  EXPECT_EQ(outcomes.size(), 1u) << "ranks throw different things";
  return *outcomes.begin();
}

template <typename Exception>
std::pair<std::string, std::string> outcome_of_throwing(const Exception& exception) {
  return outcome_of([&](int rank) {
    if (rank > 0) throw exception;
  });
}

using Outcome = std::pair<std::string, std::string>;

TEST(Agreement, OneRanksFailureIsThrownOnAllWithItsTypeAndReason) {
  EXPECT_EQ(outcome_of_throwing(ConfigError("a\nb")), Outcome("ConfigError", "rank 1: a"));
  EXPECT_EQ(outcome_of_throwing(CheckpointError("a")), Outcome("CheckpointError", "rank 1: a"));
  EXPECT_EQ(outcome_of_throwing(InternalError("a")), Outcome("InternalError", "rank 1: a"));
  EXPECT_EQ(outcome_of_throwing(Error("a")), Outcome("Error", "rank 1: a"));
  EXPECT_EQ(outcome_of_throwing(std::runtime_error("a\ntrace")),
            Outcome("InternalError", "rank 1: a"));
  EXPECT_EQ(outcome_of_throwing(std::bad_alloc()), Outcome("ConfigError", "rank 1: out of memory"));
  const auto full = std::make_error_code(std::errc::no_space_on_device);
  EXPECT_EQ(outcome_of_throwing(std::filesystem::filesystem_error("x", "/disk/a", full)),
            Outcome("Error", "rank 1: /disk/a: No space left on device"));
}

TEST(Agreement, TheFirstFailingRankCountsAndIsNotNamedWhenAllFailAlike) {
  EXPECT_EQ(outcome_of([](int rank) {
              if (rank == 1) throw Error("b");
              if (rank == 2) throw ConfigError("c");
            }),
            Outcome("Error", "rank 1: b"));
  EXPECT_EQ(outcome_of([](int) { throw ConfigError("a"); }), Outcome("ConfigError", "a"));
}

TEST(Agreement, FromRootRunsOnRank0AndNamesNoRank) {
  harness::run_ranks(3, [&](comm::Communicator& world) {
    int num_runs = 0;
    const auto produce = [&](const Peers&) {
      ++num_runs;
      return std::string("found");
    };
    EXPECT_EQ(from_root(world, produce), "found");
    EXPECT_EQ(num_runs, world.rank() == 0 ? 1 : 0);
    const auto fail = [](const Peers&) -> std::string { throw ConfigError("taken"); };
    EXPECT_EQ(harness::message_of<ConfigError>([&] { from_root(world, fail); }), "taken");
  });
}

TEST(Agreement, ALostPeerIsNotHiddenBehindAnotherError) {
  harness::run_ranks(1, [](comm::Communicator& world) {
    EXPECT_THROW(run_or_throw(world, [](const Peers&) { throw CommError("rank 1 is dead"); }),
                 CommError);
  });
}

// A rank whose work finds a peer lost, in a group of its own say, ends those who wait for it.
TEST(Agreement, ALostPeerInTheWorkEndsTheOthersToo) {
  std::atomic<int> threw = 0;
  harness::run_ranks(3, [&](comm::Communicator& world) {
    const std::string error = harness::message_of<CommError>([&] {
      run_or_throw(world, [&](const Peers&) {
        if (world.rank() == 1) throw CommError("another group lost a rank");
      });
    });
    EXPECT_NE(error.find("another group lost a rank"), std::string::npos) << error;
    ++threw;
  });
  EXPECT_EQ(threw, 3);
}

}  // namespace
}  // namespace trireme::checkpoint
