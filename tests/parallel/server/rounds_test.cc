// Rounds of a quorum and a grace (Consistency), by a virtual clock, and over sockets.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/server/cluster.h"
#include "trireme/base/error.h"
#include "trireme/parallel/server/replica.h"

namespace trireme::parallel::server_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int64_t kSize = 5;

// weights -= mean
class Subtract final : public PieceUpdate {
 public:
  void apply(at::Tensor& weights, const PieceGradient& gradient, double, int64_t) override {
    weights.sub_(gradient.values);
  }
  std::vector<PieceState> states() override { return {}; }
};

struct RoundsPort : ReplicaPort {
  void send(PeerId peer, Frame frame, int64_t) override {
    if (frame.header.kind == FrameKind::kWeights) answers[peer] = frame;
    if (frame.header.kind == FrameKind::kRefused) ++refused;
  }
  void send_to_worker(uint32_t, Frame) override {}
  void tell_director(Frame) override {}
  void log(const LogRecord& record) override { records.push_back(record); }
  void count_staleness(int64_t rounds) override { staleness.push_back(rounds); }

  std::map<PeerId, Frame> answers;  // the last of each peer
  std::vector<LogRecord> records;
  std::vector<int64_t> staleness;
  int64_t refused = 0;
};

// One server with one piece, and its workers, which are peers of their own numbers.
class Server {
 public:
  Server(const Consistency& consistency, uint32_t workers, ReplayOrder* replay = nullptr) {
    const std::vector<ServedParameter> parameters{{"a", kSize, 1, at::kDouble}};
    const MakePiece make = [](const Piece& piece, int64_t) {
      return ServedPiece{at::zeros({piece.rows, piece.width}, piece.dtype),
                         std::make_unique<Subtract>()};
    };
    auto state = std::make_unique<ShardState>(key_ranges(parameters, std::vector<double>{1}), 0,
                                              consistency, make);
    state_ = state.get();
    replica_ = std::make_unique<Replica>(std::move(state), 0, port, replay);
    for (uint32_t worker = 0; worker < workers; ++worker) workers_[worker] = 1;
    replica_->start(workers_);
    see_workers();
  }

  void push(uint32_t worker, const at::Tensor& difference, double weight) {
    Frame frame = event(EventKind::kPush, worker, ++steps_[worker]);
    frame.header.base = bases_[worker];
    frame.header.learning_rate = weight;
    frame.payload = bytes_of(difference.contiguous());
    replica_->on_event(worker, std::move(frame));
  }
  // Asks for the weights after its push.
  void pull(uint32_t worker) {
    port.answers.erase(worker);
    Frame frame;
    frame.header = {.kind = FrameKind::kPull, .worker = worker, .step = steps_[worker] + 1};
    replica_->on_pull(worker, std::move(frame));
  }
  // Whether it has them; it then goes on from there.
  bool has_answer(uint32_t worker) {
    const auto found = port.answers.find(worker);
    if (found == port.answers.end()) return false;
    bases_[worker] = found->second.header.sequence;
    return true;
  }
  void set_away(uint32_t worker, bool is_away) {
    replica_->on_event(worker, event(EventKind::kAway, worker, is_away ? 1 : 0));
  }
  void lose(uint32_t worker) {
    workers_.erase(worker);
    see_workers();
  }
  void tick(milliseconds now) { replica_->on_tick(steady_clock::time_point() + now); }

  int64_t version() const { return state_->version(0); }
  at::Tensor weights() { return state_->weights(0).view(at::kDouble); }
  int64_t base(uint32_t worker) { return bases_[worker]; }
  ShardState& state() { return *state_; }

  RoundsPort port;

 private:
  static Frame event(EventKind kind, uint32_t worker, int64_t step) {
    Frame frame;
    frame.header = {.kind = FrameKind::kEvent,
                    .part = static_cast<uint16_t>(kind),
                    .worker = worker,
                    .incarnation = 1,
                    .step = step};
    return frame;
  }
  void see_workers() {
    replica_->take_place({.number = ++view_, .servers = {}, .workers = workers_, .chains = {{1}}},
                         1);
  }

  ShardState* state_ = nullptr;
  std::unique_ptr<Replica> replica_;
  std::map<uint32_t, uint32_t> workers_;
  std::map<uint32_t, int64_t> steps_, bases_;
  uint32_t view_ = 0;
};

at::Tensor ones(double value) { return at::full({kSize}, value, at::kDouble); }

// The rule once more, in plain words.
struct Expected {
  explicit Expected(const Consistency& rule) : rule(rule) {}

  struct Push {
    uint32_t worker = 0;
    at::Tensor difference;
    double weight = 0;
  };
  void push(const Push& push, size_t workers) {
    open.push_back(push);
    if (num_open() == workers || (num_open() == quorum() && rule.grace.count() == 0)) end();
  }
  void tick(milliseconds now) {
    if (num_open() < quorum()) return;
    if (!until) until = now + rule.grace;
    if (now >= *until) end();
  }
  void end() {
    std::ranges::stable_sort(open, {}, &Push::worker);
    at::Tensor sum = at::zeros({kSize}, at::kDouble);
    double weight = 0;
    for (const Push& each : open) sum += each.weight * each.difference, weight += each.weight;
    weights -= sum / weight;
    ++version;
    open.clear();
    until.reset();
  }
  size_t num_open() const {
    std::set<uint32_t> workers;
    for (const Push& each : open) workers.insert(each.worker);
    return workers.size();
  }
  size_t quorum() const { return static_cast<size_t>(rule.quorum); }

  Consistency rule;
  at::Tensor weights = at::zeros({kSize}, at::kDouble);
  std::vector<Push> open;
  std::optional<milliseconds> until;
  int64_t version = 0;
};

TEST(Rounds, AnyOrderOfArrivalGivesTheWeightedMeanOfEachRound) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    harness::Draw draw(seed);
    const auto workers = draw.below<uint32_t>(6) + 1;
    const Consistency rule{.staleness = kAsynchronous,
                           .quorum = draw.below<int64_t>(workers) + 1,
                           .grace = milliseconds(draw.below(3) * 50)};
    Server server(rule, workers);
    Expected expected(rule);
    std::vector<bool> waits(workers);
    milliseconds now{0};
    for (int i = 0; i < 200; ++i) {
      const auto worker = draw.below(workers);
      if (!waits[worker]) {
        at::Tensor difference = at::empty({kSize}, at::kDouble);
        for (int64_t k = 0; k < kSize; ++k) {
          difference[k] = static_cast<double>(draw.below(2001) - 1000) / 7.0;
        }
        const double weight = 1.0 + static_cast<double>(draw.below(1000));
        server.push(worker, difference, weight);
        expected.push({worker, difference, weight}, workers);
        server.pull(worker);
        waits[worker] = true;
      }
      now += milliseconds(draw.below(30));
      server.tick(now);
      expected.tick(now);
      ASSERT_EQ(server.version(), expected.version) << "seed " << seed << " event " << i;
      harness::assert_close(server.weights(), expected.weights, 1e-12, 1e-12, "weights");
      for (uint32_t each = 0; each < workers; ++each) {
        const bool may_go_on = waits[each] && server.base(each) < server.version();
        ASSERT_EQ(waits[each] && server.has_answer(each), may_go_on) << seed << " " << each;
        if (may_go_on) waits[each] = false;
      }
    }
    EXPECT_GT(expected.version, 5) << seed;
    EXPECT_EQ(server.port.refused, 0);
  }
}

TEST(Rounds, AGraceBeginsWithTheQuorumAndLateOnesComeIntoTheNextRound) {
  Server server({.staleness = kAsynchronous, .quorum = 2, .grace = milliseconds(100)}, 4);
  server.push(3, ones(1), 1);
  server.tick(milliseconds(1000));
  server.push(1, ones(3), 1);
  server.tick(milliseconds(2000));
  server.tick(milliseconds(2099));
  EXPECT_EQ(server.version(), 0);
  server.push(0, ones(5), 2);
  server.tick(milliseconds(2100));
  ASSERT_EQ(server.version(), 1);
  harness::assert_close(server.weights(), ones(-(1 + 3 + 2 * 5) / 4.0), 1e-15, 0, "weights");
  EXPECT_EQ(server.port.staleness, (std::vector<int64_t>{0, 0, 0}));
  server.push(2, ones(9), 1);  // late
  server.pull(2);
  EXPECT_TRUE(server.has_answer(2)) << "it goes on with what the others have learned";
  EXPECT_EQ(server.port.answers.at(2).header.base, 1) << "its own is not in there";
  EXPECT_EQ(server.port.answers.at(2).header.num_rows, 3U);
  server.pull(1);
  ASSERT_TRUE(server.has_answer(1));
  server.push(1, ones(1), 3);
  server.tick(milliseconds(3000));
  server.tick(milliseconds(3100));
  ASSERT_EQ(server.version(), 2);
  harness::assert_close(server.weights(), ones(-14 / 4.0 - (9 + 3) / 4.0), 1e-15, 0, "weights");
  EXPECT_EQ(server.port.staleness, (std::vector<int64_t>{0, 0, 0, 0, 1})) << "by worker";
}

TEST(Rounds, AllEndARoundAtOnce) {
  Server server({.staleness = kAsynchronous, .quorum = 1, .grace = milliseconds(1 << 30)}, 3);
  for (const uint32_t worker : {2U, 0U, 1U}) {
    EXPECT_EQ(server.version(), 0);
    server.push(worker, ones(worker), 1);
  }
  EXPECT_EQ(server.version(), 1);
}

TEST(Rounds, OneWhoHasMissedTooManyIsWaitedFor) {
  Server server({.staleness = 2, .quorum = 1}, 2);
  for (int64_t round = 1; round <= 2; ++round) {
    server.push(0, ones(1), 1);
    ASSERT_EQ(server.version(), round);
    server.pull(0);
    ASSERT_TRUE(server.has_answer(0));
  }
  server.push(0, ones(1), 1);
  server.tick(milliseconds(1 << 20));
  EXPECT_EQ(server.version(), 2) << "worker 1 has missed two rounds";
  server.push(1, ones(1), 1);
  EXPECT_EQ(server.version(), 3);
  EXPECT_EQ(server.port.staleness.back(), 2) << "of worker 1";
}

TEST(Rounds, WhoIsAwayOrLostIsNotWaitedFor) {
  Server server({.staleness = 0, .quorum = 3}, 3);
  server.push(0, ones(2), 1);
  server.set_away(1, true);
  EXPECT_EQ(server.version(), 0);
  server.set_away(2, true);
  EXPECT_EQ(server.version(), 1);
  server.set_away(0, true);
  for (const uint32_t worker : {0U, 1U, 2U}) server.set_away(worker, false);
  EXPECT_EQ(server.version(), 1) << "nobody has pushed";
  server.pull(0);
  ASSERT_TRUE(server.has_answer(0));
  server.push(0, ones(2), 1);
  server.push(1, ones(4), 1);
  EXPECT_EQ(server.version(), 1);
  server.lose(2);
  EXPECT_EQ(server.version(), 2);
  harness::assert_close(server.weights(), ones(-2 - 3), 1e-15, 0, "weights");
  EXPECT_EQ(server.port.refused, 0);
}

TEST(Rounds, WhoHasPushedAndGoneAwayMakesNoQuorumSmaller) {
  Server server({.staleness = kAsynchronous, .quorum = 3}, 3);
  server.push(0, ones(3), 1);
  server.set_away(0, true);
  server.push(1, ones(6), 1);
  EXPECT_EQ(server.version(), 0) << "worker 2 is there";
  server.set_away(1, true);
  EXPECT_EQ(server.version(), 0);
  server.push(2, ones(9), 1);
  EXPECT_EQ(server.version(), 1);
  harness::assert_close(server.weights(), ones(-6), 1e-15, 0, "weights");
}

TEST(Rounds, WhatHasNoWeightChangesNothing) {
  Server server({.staleness = kAsynchronous, .quorum = 2}, 2);
  server.push(0, ones(7), 0);
  server.push(1, ones(3), 5);
  harness::assert_close(server.weights(), ones(-3), 1e-15, 0, "weights");
  for (const uint32_t worker : {0U, 1U}) server.pull(worker), (void)server.has_answer(worker);
  EXPECT_EQ(server.port.answers.at(0).header.num_rows, 1U) << "one had a part";
  server.push(0, ones(7), 0);
  server.push(1, ones(3), 0);
  EXPECT_EQ(server.version(), 2);
  harness::assert_close(server.weights(), ones(-3), 1e-15, 0, "weights");
}

TEST(Rounds, PushesThatDoNotFitAreRefused) {
  Server server({.staleness = kAsynchronous, .quorum = 2}, 2);
  EXPECT_THROW(server.push(0, at::ones({kSize + 1}, at::kDouble), 1), ConfigError);
  EXPECT_THROW(server.push(0, ones(1) / 0.0, 1), ConfigError);
  EXPECT_THROW(server.push(0, ones(1), -1), ConfigError);
  EXPECT_THROW(server.push(0, ones(1), 1e300), ConfigError);
  Frame far;
  far.payload = bytes_of(ones(1));
  far.header = {.kind = FrameKind::kEvent,
                .part = static_cast<uint16_t>(EventKind::kPush),
                .incarnation = 1,
                .learning_rate = 1};
  for (const int64_t step : {std::numeric_limits<int64_t>::max(), int64_t{0}, int64_t{-1}}) {
    far.header.step = step;
    EXPECT_THROW((void)server.state().judge(far), ConfigError) << step;
  }
  EXPECT_EQ(server.version(), 0);
  server.push(0, ones(1), 1);
  server.push(1, ones(1), 1);
  EXPECT_EQ(server.version(), 1) << "others still count";
}

// Learners that push `cycles` times to each of `fragments` of two pieces each, which have servers
// of their own: a push arrives at them at different times. Returns whether all come to the end.
bool come_to_the_end(harness::Draw& draw, const Consistency& rule, uint32_t learners,
                     size_t fragments, size_t cycles) {
  std::vector<std::unique_ptr<Server>> servers;
  for (size_t i = 0; i < 2 * fragments; ++i) {
    servers.push_back(std::make_unique<Server>(rule, learners));
  }
  std::vector<std::set<size_t>> waits(learners);        // for servers
  std::vector<size_t> num_pushes(learners);             // to a fragment
  std::vector<std::pair<uint32_t, size_t>> on_the_way;  // learner, server
  while (true) {
    std::vector<uint32_t> ready;
    for (uint32_t learner = 0; learner < learners; ++learner) {
      std::erase_if(waits[learner], [&](size_t at) { return servers[at]->has_answer(learner); });
      const bool ends = num_pushes[learner] > fragments * cycles;
      if (waits[learner].empty() && !ends) ready.push_back(learner);
    }
    if (ready.empty() && on_the_way.empty()) break;
    const size_t next = draw.below(ready.size() + on_the_way.size());
    if (next >= ready.size()) {
      const auto [learner, at] = on_the_way[next - ready.size()];
      on_the_way.erase(on_the_way.begin() + static_cast<std::ptrdiff_t>(next - ready.size()));
      servers[at]->push(learner, ones(1), 1);
      servers[at]->pull(learner);
      continue;
    }
    const uint32_t learner = ready[next];
    if (draw.below<uint32_t>(2 * learner + 1) > 0) continue;  // some are slow
    const size_t fragment = num_pushes[learner]++ % fragments;
    for (size_t piece = 0; piece < 2; ++piece) {
      if (num_pushes[learner] > fragments * cycles) break;
      waits[learner].insert(2 * fragment + piece);
      servers[2 * fragment + piece]->port.answers.erase(learner);
      on_the_way.emplace_back(learner, 2 * fragment + piece);
    }
    if (num_pushes[learner] <= fragments * cycles) continue;
    for (const auto& server : servers) server->set_away(learner, true);
  }
  return std::ranges::all_of(waits, [](const auto& of) { return of.empty(); });
}

TEST(Rounds, NobodyWaitsInACircle) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    harness::Draw draw(seed);
    const auto learners = draw.below<uint32_t>(5) + 2;
    const int64_t bounds[] = {kAsynchronous, 1, 2, 5};
    const Consistency rule{.staleness = bounds[draw.below(4)],
                           .quorum = draw.below<int64_t>(learners) + 1};
    EXPECT_TRUE(come_to_the_end(draw, rule, learners, draw.below<size_t>(4) + 1, 6))
        << "seed " << seed << ": " << learners << " learners, quorum " << rule.quorum
        << ", staleness " << rule.staleness;
  }
}

// In the middle of a round.
TEST(Rounds, ACopyHasTheRoundUnderWay) {
  const Consistency rule{.staleness = 3, .quorum = 3};
  Server server(rule, 4), copy(rule, 4);
  for (const uint32_t worker : {0U, 1U, 2U}) server.push(worker, ones(worker + 1.0), 1);
  server.push(3, ones(8), 2);  // late
  server.set_away(1, true);
  const std::vector<Frame> parts = server.state().snapshot();
  for (const Frame& part : parts) EXPECT_EQ(copy.state().load(part), &part == &parts.back());
  for (Server* const each : {&server, &copy}) {
    EXPECT_TRUE(each->state().is_waiting(0, 3));
    EXPECT_EQ(each->state().num_combined(0), 3);
    Frame leave;
    leave.header = {.kind = FrameKind::kEvent,
                    .part = static_cast<uint16_t>(EventKind::kLeave),
                    .worker = 0,
                    .incarnation = 1};
    each->state().apply(leave);
    leave.header.worker = 2;
    each->state().apply(leave);
    EXPECT_EQ(each->version(), 2) << "worker 1 is away";
    EXPECT_EQ(each->state().take_staleness().back(), 1);
  }
  harness::assert_same_bits(copy.weights(), server.weights(), "weights");
}

// What a worker has learned, a function of the weights that it has taken.
at::Tensor learned(const at::Tensor& weights, uint32_t worker, int64_t round) {
  return at::sin(weights * (worker + 0.7) + static_cast<double>(round)) * 0.1;
}

// Trains `rounds` of each worker at random speeds, until all are away. Returns the weights.
std::vector<at::Tensor> train_rounds(Cluster& cluster, int64_t rounds, uint64_t seed) {
  cluster.run_workers([&](uint32_t worker, ServerClient& client) {
    harness::Draw draw(seed * 100 + worker);
    const std::vector<at::Tensor> weights = cluster.empty_weights();
    int64_t step = client.first_step();
    client.pull(step, weights);
    for (int64_t round = 0; round < rounds; ++round, ++step) {
      client.wait_all_pulled();
      std::this_thread::sleep_for(milliseconds(draw.below(4) * (worker == 0 ? 4 : 1)));
      for (size_t i = 0; i < weights.size(); ++i) {
        const at::Tensor difference = learned(weights[i], worker, round).view({-1});
        client.push_difference(step, static_cast<int64_t>(i), 1.0 + worker,
                               [&](int64_t first, int64_t count) {
                                 return bytes_of(difference.narrow(0, first, count).clone());
                               });
      }
      client.pull(step + 1, weights);
    }
    client.wait_all_pulled();
    client.set_away(true);
  });
  return cluster.pull_now();
}

TEST(Rounds, ARunIsReplayedBitForBit) {
  for (const int64_t grace : {0, 25}) {
    const harness::TemporaryFolder folder;
    ClusterOptions options{.servers = 2,
                           .workers = 3,
                           .staleness = 4,
                           .quorum = 2,
                           .grace = milliseconds(grace),
                           .log = folder.path().string()};
    std::vector<at::Tensor> first;
    {
      Cluster cluster(options);
      first = train_rounds(cluster, 12, /*seed=*/1);
      int64_t pushes = 0;
      for (const auto& [rounds, count] : cluster.staleness()) pushes += count;
      EXPECT_EQ(pushes, 3 * 12 * std::ssize(cluster.run().pieces)) << "each counts once";
    }
    options.replay = std::exchange(options.log, "");
    for (const uint64_t seed : {1, 2}) {
      Cluster cluster(options);
      // Not the weights at once: whoever asks for them is not in the log.
      const std::vector<at::Tensor> again = train_rounds(cluster, 12, seed);
      ASSERT_EQ(again.size(), first.size());
      for (size_t i = 0; i < first.size(); ++i) {
        harness::assert_same_bits(again[i], first[i], "replayed weights");
      }
    }
  }
}

TEST(Rounds, ChainsOfServersChangeNothingIfAllAreInTheQuorum) {
  std::vector<at::Tensor> plain;
  for (const int64_t copies : {1, 3}) {
    Cluster cluster({.servers = 3, .workers = 3, .copies = copies, .quorum = 3});
    const std::vector<at::Tensor> weights = train_rounds(cluster, 6, 3);
    if (plain.empty()) plain = weights;
    for (size_t i = 0; i < plain.size(); ++i) {
      harness::assert_same_bits(weights[i], plain[i], "weights");
    }
  }
}

}  // namespace
}  // namespace trireme::parallel::server_test
