// How many round trips a small collective takes between hosts, over a channel whose time the test
// keeps (wires.h).
#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/hierarchical/hierarchical_ranks.h"
#include "tests/comm/message/wires.h"
#include "trireme/base/error.h"
#include "trireme/comm/hierarchical/hierarchical_collectives.h"
#include "trireme/comm/message/message_communicator.h"
#include "trireme/comm/sized_message.h"

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;

// The least number of half round trips in a few rounds.
int ticks_of(const std::vector<int>& hosts, const harness::RankFunction& call) {
  constexpr int kRounds = 3;
  constexpr int kMostTicks = 1 << 20;
  Wires wires;
  std::vector<int> ticks(kRounds, kMostTicks);
  const auto make_outer = [&](Communicator& world) -> std::unique_ptr<Communicator> {
    return std::make_unique<MessageCommunicator>(
        std::make_unique<WireChannel>(wires, world.rank(), world.size()), "outer", 60s);
  };
  const HostMap map = host_map_of(hosts);
  harness::run_ranks(static_cast<int>(hosts.size()), [&](Communicator& world) {
    auto inner = world.split(hosts[world.rank()], world.rank(), "inner");
    const auto group = make_hierarchical_group(std::move(inner), make_outer(world), map, "hull");
    for (int& each : ticks) {
      world.barrier()->wait();
      const int begin = wires.now();
      world.barrier()->wait();
      call(*group);
      world.barrier()->wait();
      if (world.rank() == 0) each = wires.now() - begin;
    }
  });
  return *std::ranges::min_element(ticks);
}

const std::vector<std::vector<int>> kHosts = {{0, 1}, {0, 0, 1, 1}, {0, 1, 1, 2}, {0, 1, 0, 1}};

TEST(RoundTrips, ASmallCollectiveBetweenHostsTakesOne) {
  constexpr int64_t kCount = HierarchicalCollectives::kMostTold / 4;
  for (const std::vector<int>& hosts : kHosts) {
    SCOPED_TRACE(::testing::PrintToString(hosts));
    EXPECT_LE(ticks_of(hosts, [](Communicator& group) { group.barrier()->wait(); }), 2);
    EXPECT_LE(ticks_of(hosts,
                       [](Communicator& group) {
                         at::Tensor data = at::ones({kCount});
                         group.all_reduce(data)->wait();
                       }),
              2);
    EXPECT_LE(ticks_of(hosts,
                       [](Communicator& group) {
                         at::Tensor data = at::ones({kCount});
                         group.broadcast(data, group.size() - 1)->wait();
                       }),
              2);
    EXPECT_LE(ticks_of(hosts,
                       [](Communicator& group) {
                         std::vector<at::Tensor> all;
                         for (int i = 0; i < group.size(); ++i) all.push_back(at::ones({kCount}));
                         group.all_gather(all, at::ones({kCount}))->wait();
                       }),
              2);
  }
}

TEST(RoundTrips, ALargerOneTakesMore) {
  // So the clock counts.
  EXPECT_GT(ticks_of({0, 0, 1, 1},
                     [](Communicator& group) {
                       at::Tensor data = at::ones({HierarchicalCollectives::kMostTold / 4 + 1});
                       group.all_reduce(data)->wait();
                     }),
            2);
}

// As plan/cost/device_seconds.cc counts them for so many hosts.
TEST(RoundTrips, LargerOnesTakeThoseThatThePlannerCounts) {
  constexpr int64_t kCount = 1000;
  const std::vector<std::pair<std::vector<int>, int>> cases = {
      {{0, 1}, 2}, {{0, 0, 1, 1}, 2}, {{0, 1, 2}, 3}};
  for (const auto& [hosts, num_hosts] : cases) {
    SCOPED_TRACE(::testing::PrintToString(hosts));
    const auto room = [](const Communicator& group) {
      std::vector<at::Tensor> all;
      for (int i = 0; i < group.size(); ++i) all.push_back(at::ones({kCount}));
      return all;
    };
    EXPECT_LE(ticks_of(hosts,
                       [&](Communicator& group) {
                         group.all_gather(room(group), at::ones({kCount}))->wait();
                       }),
              4);
    EXPECT_LE(ticks_of(hosts,
                       [&](Communicator& group) {
                         group.reduce_scatter(at::ones({kCount}), room(group))->wait();
                       }),
              num_hosts + 3);
    EXPECT_LE(
        ticks_of(hosts, [&](Communicator& group) { group.all_reduce(at::ones({kCount}))->wait(); }),
        num_hosts + 5);
  }
}

// Notes the sizes of what it sends (above 0) and asks for (below 0), in order.
class NotingChannel final : public WireChannel {
 public:
  NotingChannel(Wires& wires, int rank, int size, std::vector<int64_t>& notes)
      : WireChannel(wires, rank, size), notes_(notes) {}
  ChannelMessagePtr send(const void* data, size_t num_bytes, int peer, int tag) override {
    note(static_cast<int64_t>(num_bytes));
    return WireChannel::send(data, num_bytes, peer, tag);
  }
  ChannelMessagePtr recv(void* data, size_t num_bytes, int peer, int tag) override {
    note(-static_cast<int64_t>(num_bytes));
    return WireChannel::recv(data, num_bytes, peer, tag);
  }

 private:
  void note(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    notes_.push_back(bytes);
  }
  std::mutex mutex_;
  std::vector<int64_t>& notes_;
};

TEST(RoundTrips, TheNextBlockIsAskedForBeforeTheSumOfThisOneLeaves) {
  constexpr int64_t kBlock = 1 << 19;  // bytes, of each of two ranks
  Wires wires;
  std::vector<int64_t> notes;  // of the last host
  harness::run_ranks(2, [&](Communicator& world) {
    std::vector<int64_t> others;
    auto inner = world.split(world.rank(), 0, "inner");
    auto outer = std::make_unique<MessageCommunicator>(
        std::make_unique<NotingChannel>(wires, world.rank(), 2, world.rank() == 1 ? notes : others),
        "outer", 60s);
    const HostMap map = host_map_of({0, 1});
    const auto group = make_hierarchical_group(std::move(inner), std::move(outer), map, "hull");
    group->all_reduce(at::ones({2 * kBlock / 4}))->wait();
  });
  std::erase_if(notes, [](int64_t bytes) { return std::abs(bytes) < kBlock; });
  // Both partial sums, the first block's sum, and then the other block of each.
  const std::vector<int64_t> expected = {-kBlock, -kBlock, kBlock, -kBlock, kBlock};
  EXPECT_EQ(notes, expected);
}

// Those that are announced take more.
TEST(RoundTrips, AMessageOfKnownSizeTakesOne) {
  for (const std::vector<int>& hosts : kHosts) {
    SCOPED_TRACE(::testing::PrintToString(hosts));
    const auto swap = [](Communicator& group, bool is_sized) {
      const int last = group.size() - 1;
      if (group.rank() != 0 && group.rank() != last) return;
      const int peer = last - group.rank();
      const at::Tensor theirs = at::zeros({1000}), mine = at::ones({1000});
      const Options options{.background = true};
      const WorkPtr arriving =
          is_sized ? recv_sized(group, theirs, peer, {}) : group.recv(theirs, peer, options);
      const WorkPtr leaving =
          is_sized ? send_sized(group, mine, peer, {}) : group.send(mine, peer, options);
      arriving->wait();
      leaving->wait();
      EXPECT_TRUE(theirs.equal(mine));
    };
    EXPECT_LE(ticks_of(hosts, [&](Communicator& group) { swap(group, true); }), 2);
    EXPECT_GT(ticks_of(hosts, [&](Communicator& group) { swap(group, false); }), 2);
  }
}

// Over messages alone it takes two.
TEST(RoundTrips, OfAFlatGroupOfMessages) {
  for (const int size : {2, 3, 4}) {
    std::vector<int> hosts(size);
    Wires wires;
    int least = 1 << 20;
    harness::run_ranks(size, [&](Communicator& world) {
      MessageCommunicator group(std::make_unique<WireChannel>(wires, world.rank(), size), "flat",
                                60s);
      for (int round = 0; round < 3; ++round) {
        world.barrier()->wait();
        const int begin = wires.now();
        world.barrier()->wait();
        static_cast<Communicator&>(group).all_reduce(at::ones({1}))->wait();
        world.barrier()->wait();
        if (world.rank() == 0) least = std::min(least, wires.now() - begin);
      }
    });
    EXPECT_LE(least, 4) << size << " ranks";
  }
}

}  // namespace
}  // namespace trireme::comm
