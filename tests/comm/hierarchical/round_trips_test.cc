// How many round trips a small collective takes between hosts, over a channel whose time the test
// keeps: nothing arrives until every rank waits.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/hierarchical/hierarchical_ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/hierarchical/hierarchical_collectives.h"
#include "trireme/comm/message/message_communicator.h"

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;

// The wires between all ranks. A tick is half a round trip. A message leaves once its sender knows
// that the receiver waits for it, as over TCP sockets that do not buffer, and arrives a tick later.
class Wires {
 public:
  struct Post {
    void* data;
    size_t num_bytes;
    int posted_at;
    int done_at = -1;
  };
  using Place = std::tuple<int, int, int>;  // from, to, tag
  using PostPtr = std::shared_ptr<Post>;

  Wires() : clock_([this] { run(); }) {}
  ~Wires() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    clock_.join();
  }

  PostPtr send(const void* data, size_t num_bytes, const Place& place) {
    return post(place, const_cast<void*>(data), num_bytes, /*is_send=*/true);
  }
  PostPtr recv(void* data, size_t num_bytes, const Place& place) {
    return post(place, data, num_bytes, /*is_send=*/false);
  }
  void wait(const Post& post) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return post.done_at >= 0 && post.done_at <= now_; });
  }
  int now() {
    const std::lock_guard lock(mutex_);
    return now_;
  }

 private:
  using Posts = std::deque<PostPtr>;

  PostPtr post(const Place& place, void* data, size_t num_bytes, bool is_send) {
    const std::lock_guard lock(mutex_);
    Posts& mine = is_send ? sends_[place] : receipts_[place];
    Posts& theirs = is_send ? receipts_[place] : sends_[place];
    ++activity_;
    const auto made = std::make_shared<Post>(Post{data, num_bytes, now_});
    if (theirs.empty()) {
      mine.push_back(made);
      return made;
    }
    const PostPtr other = theirs.front();
    theirs.pop_front();
    Post& send = is_send ? *made : *other;
    Post& receipt = is_send ? *other : *made;
    EXPECT_EQ(send.num_bytes, receipt.num_bytes);
    std::memcpy(receipt.data, send.data, std::min(send.num_bytes, receipt.num_bytes));
    send.done_at = std::max(send.posted_at, receipt.posted_at + 1);
    receipt.done_at = send.done_at + 1;
    last_ = std::max(last_, receipt.done_at);
    return made;
  }

  // Time goes on when something is under way and nobody has posted anything for a while. A slow
  // machine may count more ticks than there are, never fewer.
  void run() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      const int before = activity_;
      changed_.wait_for(lock, 10ms, [&] { return stop_; });
      if (activity_ == before && last_ > now_) {
        ++now_;
        changed_.notify_all();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Place, Posts> sends_, receipts_;
  int now_ = 0, last_ = 0, activity_ = 0;
  bool stop_ = false;
  std::thread clock_;
};

class WireMessage : public ChannelMessage {
 public:
  WireMessage(Wires& wires, Wires::PostPtr post, int source)
      : wires_(wires), post_(std::move(post)), source_(source) {}
  void wait(std::chrono::milliseconds) override { wires_.wait(*post_); }
  void cancel() override {}
  int source() const override { return source_; }

 private:
  Wires& wires_;
  const Wires::PostPtr post_;
  const int source_;
};

class WireChannel : public MessageChannel {
 public:
  WireChannel(Wires& wires, int rank, int size) : wires_(wires), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& transport() const override { return transport_; }
  ChannelMessagePtr send(const void* data, size_t num_bytes, int peer, int tag) override {
    return std::make_unique<WireMessage>(wires_, wires_.send(data, num_bytes, {rank_, peer, tag}),
                                         peer);
  }
  ChannelMessagePtr recv(void* data, size_t num_bytes, int peer, int tag) override {
    return std::make_unique<WireMessage>(wires_, wires_.recv(data, num_bytes, {peer, rank_, tag}),
                                         peer);
  }
  void leave_word(const std::string&) noexcept override {}
  std::string word_left() noexcept override { return {}; }
  void close() noexcept override {}
  std::unique_ptr<MessageChannel> split(const std::string&, const std::vector<int>&,
                                        std::chrono::milliseconds) override {
    throw CommError("wires are not split");
  }

 private:
  Wires& wires_;
  const int rank_, size_;
  const std::string transport_ = "wires";
};

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

TEST(RoundTrips, ASmallCollectiveBetweenHostsTakesTwo) {
  constexpr int64_t kCount = HierarchicalCollectives::kMostTold / 4;
  for (const std::vector<int>& hosts : kHosts) {
    SCOPED_TRACE(::testing::PrintToString(hosts));
    EXPECT_LE(ticks_of(hosts, [](Communicator& group) { group.barrier()->wait(); }), 4);
    EXPECT_LE(ticks_of(hosts,
                       [](Communicator& group) {
                         at::Tensor data = at::ones({kCount});
                         group.all_reduce(data)->wait();
                       }),
              4);
    EXPECT_LE(ticks_of(hosts,
                       [](Communicator& group) {
                         at::Tensor data = at::ones({kCount});
                         group.broadcast(data, group.size() - 1)->wait();
                       }),
              4);
    EXPECT_LE(ticks_of(hosts,
                       [](Communicator& group) {
                         std::vector<at::Tensor> all;
                         for (int i = 0; i < group.size(); ++i) all.push_back(at::ones({kCount}));
                         group.all_gather(all, at::ones({kCount}))->wait();
                       }),
              4);
  }
}

TEST(RoundTrips, ALargerOneTakesMore) {
  // So the clock counts.
  EXPECT_GT(ticks_of({0, 0, 1, 1},
                     [](Communicator& group) {
                       at::Tensor data = at::ones({HierarchicalCollectives::kMostTold / 4 + 1});
                       group.all_reduce(data)->wait();
                     }),
            4);
}

// Over messages alone it takes two as well.
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
