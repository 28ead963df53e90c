#include "trireme/comm/shared/shared_communicator.h"

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using harness::run_ranks;

at::Tensor rank_tensor(int rank, int64_t count = 3) {
  return at::full({count}, 1.0 + rank, at::kDouble);
}

// The error of every rank when each runs `function`; none may be without.
template <typename Expected = CommError>
void expect_on_all(int size, const harness::RankFunction& function,
                   const std::vector<std::string>& parts) {
  std::atomic<int> failures = 0;
  run_ranks(size, [&](Communicator& group) {
    try {
      function(group);
      ADD_FAILURE() << "rank " << group.rank() << " did not fail";
    } catch (const Expected& error) {
      for (const std::string& part : parts) EXPECT_PRED2(contains, error.what(), part);
      ++failures;
    }
    while (failures.load() < size) std::this_thread::yield();
  });
}

TEST(SharedCommunicator, RefusesSlotsThatCutElements) {
  GroupOptions options;
  options.slot_bytes = 1000;
  EXPECT_ERROR(ConfigError,
               run_ranks(
                   2, [](Communicator&) {}, options),
               "multiple of 64");
  options.slot_bytes = 64;
  EXPECT_ERROR(ConfigError,
               run_ranks(
                   2, [](Communicator&) {}, options),
               "multiple of 64, at least");
}

TEST(SharedCommunicator, BadArgumentsAreConfigErrorsAndTheGroupLivesOn) {
  run_ranks(2, [](Communicator& group) {
    at::Tensor data = rank_tensor(group.rank());
    Options bitwise;
    bitwise.operation = ReduceOp::kBitAnd;
    EXPECT_ERROR(ConfigError, group.all_reduce(data, bitwise), "bitwise and is not defined");
    EXPECT_ERROR(ConfigError, group.broadcast(data, 2), "rank 2 is not in group world");
    EXPECT_ERROR(ConfigError, group.all_gather({data}, data), "got 1 tensors");
    EXPECT_ERROR(ConfigError, group.reduce_scatter(data, {data}), "got 1 tensors");
    EXPECT_ERROR(ConfigError, group.send(data, group.rank()), "is this rank");
    group.all_reduce(data)->wait();
    EXPECT_EQ(data[0].item<double>(), 3);
  });
}

TEST(SharedCommunicator, DifferentOperationsFailOnAllRanksAndNameBoth) {
  expect_on_all(
      3,
      [](Communicator& group) {
        at::Tensor data = rank_tensor(group.rank());
        if (group.rank() == 1) return group.broadcast(data, 0)->wait();
        group.all_reduce(data)->wait();
      },
      {"all_reduce(Double, 3 elements, sum)", "rank 1 broadcast(Double, 3 elements, root 0"});
}

TEST(SharedCommunicator, UnevenBlocksThatRanksSeeDifferentlyAreAMismatch) {
  // Both sums are 8 and each rank's own block fits; only the other's is wrong.
  const auto sizes = [](int rank) { return rank == 0 ? std::pair{3, 5} : std::pair{5, 3}; };
  expect_on_all(
      2,
      [&](Communicator& group) {
        const auto [first, second] = sizes(group.rank());
        group.all_gather({at::zeros({first}), at::zeros({second})}, at::ones({3}))->wait();
      },
      {"all_gather(Float, 8 elements in blocks"});
  expect_on_all(
      2,
      [&](Communicator& group) {
        const auto [first, second] = sizes(group.rank());
        group.reduce_scatter(at::zeros({3}), {at::ones({first}), at::ones({second})})->wait();
      },
      {"reduce_scatter(Float, 8 elements in blocks"});
}

TEST(SharedCommunicator, AllToAllOfOtherSizesThanExpectedFailsOnAllRanks) {
  expect_on_all(
      2,
      [](Communicator& group) {
        const int64_t expected = group.rank() == 1 ? 4 : 3;
        group.all_to_all({at::zeros({expected}), at::zeros({3})}, {at::ones({3}), at::ones({3})})
            ->wait();
      },
      {"all_to_all #", "rank 0 sends 12 bytes to rank 1, which expects 16"});
}

TEST(SharedCommunicator, TimeoutOfOneCallNamesTheLateRank) {
  std::atomic<bool> named = false;
  run_ranks(2, [&](Communicator& group) {
    while (group.rank() == 1 && !named.load()) std::this_thread::yield();
    Options options;
    options.timeout = std::chrono::milliseconds(100);
    EXPECT_ERROR(CommError, group.barrier(options), "waiting for rank 1");
    named.store(true);
  });
}

TEST(SharedCommunicator, ErrorsOfASubGroupNameTheRanksOfTheWorldToo) {
  run_ranks(4, [](Communicator& world) {
    const auto pair = world.split(world.rank() / 2, 0, "pair");
    Options options;
    options.timeout = std::chrono::milliseconds(100);
    if (world.rank() == 2) {
      EXPECT_ERROR(CommError, pair->barrier(options), "waiting for rank 1 (world rank 3)");
    }
    world.barrier()->wait();
  });
}

TEST(SharedCommunicator, AbortOfWorkEndsItHereAndOnThePeers) {
  run_ranks(2, [](Communicator& group) {
    at::Tensor data = rank_tensor(0);
    if (group.rank() == 1) {
      EXPECT_ERROR(CommError, group.recv(data, 0), "group world was aborted");
      return;
    }
    Options options;
    options.background = true;
    const WorkPtr work = group.recv(data, 1, options);
    work->abort();
    EXPECT_ERROR(CommError, work->wait(), "group world was aborted");
  });
}

TEST(SharedCommunicator, BackgroundWorkOfSeveralGroupsInterleavesFreely) {
  run_ranks(3, [](Communicator& world) {
    std::vector<std::unique_ptr<Communicator>> groups;
    for (int g = 0; g < 4; ++g) groups.push_back(world.split(0, world.rank(), concat("g", g)));
    for (int round = 0; round < 20; ++round) {
      // Each rank issues to the groups in an order of its own; within a group the order is one.
      std::vector<int> order;
      for (int g = 0; g < 4; ++g) order.insert(order.end(), 5, g);
      std::shuffle(order.begin(), order.end(), std::mt19937(100 * round + world.rank()));
      std::vector<std::vector<at::Tensor>> data(4);
      std::vector<WorkPtr> works;
      Options options;
      options.background = true;
      for (const int g : order) {
        const double call = 10 * g + static_cast<double>(data[g].size());
        data[g].push_back(at::full({1000}, call + world.rank(), at::kDouble));
        works.push_back(groups[g]->all_reduce(data[g].back(), options));
      }
      for (const WorkPtr& work : works) work->wait();
      for (int g = 0; g < 4; ++g) {
        for (size_t i = 0; i < 5; ++i) {
          const double expected = 3 * (10 * g + static_cast<double>(i)) + 3;
          EXPECT_EQ(data[g][i][999].item<double>(), expected);
        }
      }
    }
  });
}

TEST(SharedCommunicator, BackgroundAndForegroundCallsKeepTheirOrder) {
  run_ranks(4, [](Communicator& group) {
    at::Tensor data = rank_tensor(group.rank(), 20000);
    Options background;
    background.background = true;
    const WorkPtr sum = group.all_reduce(data, background);
    const WorkPtr copy = group.broadcast(data, 3, background);
    at::Tensor other = rank_tensor(group.rank());
    group.all_reduce(other)->wait();
    EXPECT_TRUE(sum->poll() && copy->poll());
    EXPECT_EQ(data[19999].item<double>(), 10);
    EXPECT_EQ(other[0].item<double>(), 10);
  });
}

TEST(SharedCommunicator, LeavingWithRunningWorkFailsThePeersInsteadOfHangingThem) {
  run_ranks(2, [](Communicator& world) {
    auto group = world.split(0, world.rank(), "pair");
    at::Tensor data = rank_tensor(0);
    if (world.rank() == 0) {
      Options options;
      options.background = true;
      const WorkPtr work = group->recv(data, 1, options);
      group.reset();
      EXPECT_ERROR(CommError, work->wait(), "pair");
    } else {
      EXPECT_ERROR(CommError, group->barrier(), "pair");
    }
  });
}

TEST(SharedCommunicator, SplitOrdersByKeyThenRank) {
  run_ranks(6, [](Communicator& world) {
    const int color = world.rank() % 2;
    auto reversed = world.split(color, -world.rank(), "reversed");
    ASSERT_EQ(reversed->size(), 3);
    EXPECT_EQ(reversed->rank(), 2 - world.rank() / 2);
    EXPECT_EQ(reversed->name(), "reversed");
    auto by_rank = world.split(color, 7, "by_rank");
    EXPECT_EQ(by_rank->rank(), world.rank() / 2);
    at::Tensor data = rank_tensor(world.rank());
    reversed->broadcast(data, 0)->wait();
    EXPECT_EQ(data[0].item<double>(), 1.0 + 4 + color);
  });
}

TEST(SharedCommunicator, NegativeColorTakesPartAndGetsNothing) {
  run_ranks(3, [](Communicator& world) {
    auto group = world.split(world.rank() == 1 ? -1 : 0, 0, "pair");
    EXPECT_EQ(group == nullptr, world.rank() == 1);
    if (group != nullptr) group->barrier()->wait();
    auto nobody = world.split(-1, 0, "nobody");
    EXPECT_EQ(nobody, nullptr);
    world.barrier()->wait();
  });
}

TEST(SharedCommunicator, SplitsNestAndOutliveTheirParents) {
  run_ranks(8, [](Communicator& world) {
    auto half = world.split(world.rank() / 4, world.rank(), "half");
    auto quarter = half->split(half->rank() / 2, half->rank(), "quarter");
    auto alone = quarter->split(quarter->rank(), 0, "alone");
    half.reset();
    at::Tensor data = rank_tensor(world.rank(), 5000);
    quarter->all_reduce(data)->wait();
    EXPECT_EQ(data[4999].item<double>(), 2.0 + 2 * (world.rank() / 2 * 2) + 1);
    alone->all_reduce(data)->wait();
    EXPECT_EQ(alone->size(), 1);
    world.barrier()->wait();
  });
}

TEST(SharedCommunicator, RankLostBetweenTheTwoHalvesOfASplitFailsTheOthers) {
  // Rank 2's part of split() is played by hand: it tells its color and goes.
  EXPECT_ERROR(CommError,
               run_ranks(3,
                         [](Communicator& world) {
                           if (world.rank() < 2) {
                             EXPECT_ERROR(CommError, world.split(0, 0, "crew"), "rank 2 has left");
                             throw CommError("as expected");
                           }
                           const at::Tensor mine = at::zeros({2}, at::kLong);
                           std::vector<at::Tensor> all(3);
                           for (at::Tensor& other : all) other = at::empty_like(mine);
                           world.all_gather(all, mine)->wait();
                           throw CommError("as expected");
                         }),
               "as expected");
}

TEST(SharedCommunicator, TensorsThatSharedMemoryCannotHoldAreRefused) {
  harness::run_ranks(1, [](Communicator& group) {
    EXPECT_THROW(group.all_reduce(at::empty({3}, at::TensorOptions().device(at::kMeta)))->wait(),
                 ConfigError);
    EXPECT_THROW(group.broadcast(at::Tensor(), 0)->wait(), ConfigError);
  });
}

TEST(SharedCommunicator, BackgroundWorkOnAStridedLeafNeedsNoGradientMode) {
  harness::run_ranks(2, [](Communicator& group) {
    at::Tensor leaf = at::ones({4, 3}).t();
    leaf.requires_grad_();
    group.all_reduce(leaf, {.background = true})->wait();
    EXPECT_EQ(leaf.sum().item<double>(), 24);
  });
}

}  // namespace
}  // namespace trireme::comm
