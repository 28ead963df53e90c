#include "trireme/comm/hierarchical/hierarchical_communicator.h"

#include <atomic>
#include <cstring>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/comm/hierarchical/hierarchical_ranks.h"
#include "tests/comm/scalar_model.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

// The error of every rank when each runs `function`; none may be without.
void expect_on_all(const std::vector<int>& hosts, const harness::RankFunction& function,
                   const std::vector<std::string>& parts) {
  std::atomic<int> failures = 0;
  run_hierarchical_ranks(hosts, [&](Communicator& group) {
    try {
      function(group);
      ADD_FAILURE() << "rank " << group.rank() << " did not fail";
    } catch (const CommError& error) {
      for (const std::string& part : parts) EXPECT_PRED2(contains, error.what(), part);
      EXPECT_FALSE(contains(error.what(), "\n")) << error.what();
    }
    ++failures;
    while (failures.load() < group.size()) std::this_thread::yield();
    EXPECT_THROW(group.barrier()->wait(), CommError);  // dead from now on
  });
}

TEST(HierarchicalCommunicator, LargeSumsHaveTheBitsOfOneFlatGroup) {
  constexpr int64_t kCount = 1'200'003;  // several chunks a block
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    at::Tensor flat;
    harness::run_ranks(4, [&](Communicator& group) {
      at::Tensor data = values_of(group.rank(), {kCount}, dtype);
      group.all_reduce(data, {.operation = ReduceOp::kAverage})->wait();
      if (group.rank() == 0) flat = data;
    });
    for (const std::vector<int>& hosts : {std::vector{0, 0, 1, 1}, std::vector{0, 1, 1, 2}}) {
      run_hierarchical_ranks(hosts, [&](Communicator& group) {
        EXPECT_TRUE(group.reduces_in_rank_order());
        at::Tensor data = values_of(group.rank(), {kCount}, dtype);
        group.all_reduce(data, {.operation = ReduceOp::kAverage})->wait();
        harness::assert_same_bits(data, flat, "all_reduce");
        data = values_of(group.rank(), {kCount}, dtype);
        group.broadcast(data, 1)->wait();
        harness::assert_same_bits(data, values_of(1, {kCount}, dtype), "broadcast");
      });
    }
  }
}

TEST(HierarchicalCommunicator, ScatteredRanksAreSummedHostByHost) {
  // Ranks 0 and 2 share a host, and so are added first.
  const std::vector<int> order = {0, 2, 1, 3};
  for (const int64_t count : {7, 1001}) {  // told with the call, and in blocks
    std::vector<at::Tensor> in_order;
    for (const int rank : order) in_order.push_back(values_of(rank, {count}, at::kFloat));
    const at::Tensor expected = model_of(in_order, ReduceOp::kSum);
    run_hierarchical_ranks({0, 1, 0, 1}, [&](Communicator& group) {
      EXPECT_FALSE(group.reduces_in_rank_order());
      at::Tensor data = values_of(group.rank(), {count}, at::kFloat);
      group.all_reduce(data)->wait();
      harness::assert_same_bits(data, expected, "all_reduce");
    });
  }
}

TEST(HierarchicalCommunicator, BitsDoNotDependOnTheSizeOfTheData) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kShort, at::kComplexDouble}) {
    const auto most =
        HierarchicalCollectives::kMostTold / static_cast<int64_t>(c10::elementSize(dtype));
    run_hierarchical_ranks({0, 1, 0, 1, 2}, [&](Communicator& group) {
      const auto of = [&](int64_t count) {
        at::Tensor data = values_of(group.rank(), {most + 1}, dtype).narrow(0, 0, count).clone();
        group.all_reduce(data, {.operation = ReduceOp::kAverage})->wait();
        return data;
      };
      const at::Tensor large = of(most + 1);
      for (const int64_t count : {int64_t{1}, most - 1, most}) {
        harness::assert_same_bits(of(count), large.narrow(0, 0, count), "all_reduce");
      }
    });
  }
}

TEST(HierarchicalCommunicator, DifferentCallsFailOnAllRanksAndNameBoth) {
  const auto call = [](Communicator& group) {
    at::Tensor data = at::ones({3});
    if (group.rank() == 2) return group.broadcast(data, 0)->wait();
    group.all_reduce(data)->wait();
  };
  // On a host of its own, beside a rank that agrees, and between the others.
  for (const std::vector<int>& hosts : {std::vector{0, 0, 1}, std::vector{0, 1, 1},
                                        std::vector{0, 1, 2}, std::vector{0, 0, 1, 1}}) {
    expect_on_all(hosts, call,
                  {"all_reduce(Float, 3 elements, sum)", "broadcast(Float, 3 elements"});
  }
  // Between data that is told with the call and data that is not, and between two sizes of it.
  for (const int64_t other : {4, 1000}) {
    for (const std::vector<int>& hosts : {std::vector{0, 0, 1}, std::vector{0, 1, 1}}) {
      expect_on_all(hosts,
                    [&](Communicator& group) {
                      group.all_reduce(at::ones({group.rank() == 2 ? other : 3}))->wait();
                    },
                    {"all_reduce(Float, 3 elements, sum)", concat("Float, ", other, " elements")});
    }
  }
  expect_on_all({0, 1, 1},
                [](Communicator& group) {
                  const int64_t mine = group.rank() == 0 ? 3 : 5;  // the sums are equal
                  group
                      .all_gather({at::zeros({mine}), at::zeros({8 - mine}), at::zeros({3})},
                                  group.rank() == 0 ? at::ones({3}) : at::ones({3}))
                      ->wait();
                },
                {"all_gather(Float, 11 elements in blocks"});
}

TEST(HierarchicalCommunicator, ARankThatLeavesFailsTheOthersOnBothLevels) {
  std::atomic<int> failures = 0;
  EXPECT_THROW(run_hierarchical_ranks({0, 0, 1, 1},
                                      [&](Communicator& group) {
                                        if (group.rank() == 3) throw ConfigError("overboard");
                                        EXPECT_ERROR(CommError, group.barrier(),
                                                     "barrier #1 of group hull");
                                        ++failures;
                                      }),
               ConfigError);
  EXPECT_EQ(failures.load(), 3);
}

TEST(HierarchicalCommunicator, ALateRankIsNamedAtTheTimeout) {
  std::atomic<bool> is_named = false;
  run_hierarchical_ranks({0, 1}, [&](Communicator& group) {
    while (group.rank() == 1 && !is_named.load()) std::this_thread::yield();
    if (group.rank() == 1) return;
    EXPECT_ERROR(CommError, group.barrier({.timeout = std::chrono::milliseconds(100)}),
                 "timed out");
    is_named.store(true);
  });
}

TEST(HierarchicalCommunicator, AbortOfWorkEndsItHereAndOnThePeers) {
  run_hierarchical_ranks({0, 0, 1}, [](Communicator& group) {
    at::Tensor data = at::ones({3});
    if (group.rank() == 0) {
      const WorkPtr work = group.recv(data, 2, {.background = true});
      work->abort();
      EXPECT_THROW(work->wait(), CommError);
    } else {
      EXPECT_THROW(group.all_reduce(data)->wait(), CommError);
    }
  });
}

TEST(HierarchicalCommunicator, MessagesOfAnotherSizeFailOnBothRanks) {
  constexpr int64_t kCount = 1 << 20;  // more than a send may leave behind
  for (const std::vector<int>& hosts : {std::vector{0, 0, 1}, std::vector{0, 1, 1}}) {
    std::atomic<int> failures = 0;
    run_hierarchical_ranks(hosts, [&](Communicator& group) {
      if (group.rank() == 2) return;
      const auto call = [&] {
        if (group.rank() == 0) return group.send(at::ones({kCount}), 1)->wait();
        group.recv(at::ones({kCount + 1}), 0)->wait();
      };
      EXPECT_THROW(call(), CommError);
      ++failures;
      while (failures.load() < 2) std::this_thread::yield();
    });
  }
}

TEST(HierarchicalCommunicator, NothingWhereSomethingIsExpectedFailsAndIsNoHang) {
  constexpr int64_t kCount = 1 << 20;
  for (const bool root_expects : {false, true}) {
    run_hierarchical_ranks({0, 1}, [&](Communicator& group) {
      const at::Tensor nothing = at::empty({0}), something = at::zeros({kCount});
      const at::Tensor& from_one = root_expects ? something : nothing;
      const at::Tensor& of_one = root_expects ? nothing : something;
      const auto call = [&] {
        if (group.rank() == 0) return group.gather({nothing, from_one}, nothing, 0)->wait();
        group.gather({}, of_one, 0)->wait();
      };
      if (group.rank() == 0) {
        EXPECT_ERROR(CommError, call(), "4194304 bytes");
      } else if (!root_expects) {
        EXPECT_THROW(call(), CommError);
      } else {
        call();  // an empty message has left
      }
    });
  }
}

TEST(HierarchicalCommunicator, AGroupWithinOneHostIsTheInnerOne) {
  run_hierarchical_ranks({0, 0, 1, 1}, [](Communicator& group) {
    const auto* hull = dynamic_cast<HierarchicalCommunicator*>(&group);
    ASSERT_NE(hull, nullptr);
    EXPECT_EQ(hull->inner().size(), 2);
    EXPECT_EQ(hull->outer().size(), 4);
    const auto within = group.split(group.rank() / 2, 0, "within");
    EXPECT_EQ(dynamic_cast<HierarchicalCommunicator*>(within.get()), nullptr);
    const auto across = group.split(group.rank() % 2, 0, "across");
    EXPECT_NE(dynamic_cast<HierarchicalCommunicator*>(across.get()), nullptr);
    EXPECT_EQ(across->name(), "across");
  });
  run_hierarchical_ranks({0, 0}, [](Communicator& group) {
    EXPECT_EQ(dynamic_cast<HierarchicalCommunicator*>(&group), nullptr);
  });
}

TEST(HierarchicalCommunicator, GroupsThatDoNotFitTheHostsAreRefused) {
  harness::run_ranks(2, [](Communicator& world) {
    auto inner = world.split(0, 0, "inner");
    auto outer = world.split(0, 0, "outer");
    EXPECT_ERROR(
        ConfigError,
        make_hierarchical_group(std::move(inner), std::move(outer), host_map_of({0, 1}), "hull"),
        "has rank");
  });
}

}  // namespace
}  // namespace trireme::comm
