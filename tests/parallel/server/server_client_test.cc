#include "trireme/parallel/server/server_client.h"

#include <atomic>
#include <optional>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "tests/parallel/server/cluster.h"
#include "trireme/base/error.h"
#include "trireme/parallel/server/link/hub.h"
#include "trireme/parallel/server/run_identity.h"
#include "trireme/parallel/server/state/shard_state.h"
#include "trireme/parallel/server/view.h"

namespace trireme::parallel::server_test {
namespace {

TEST(ServerClient, AJoinerTakesPartFromTheSlowestWorkersStep) {
  for (const int64_t staleness : {int64_t{0}, int64_t{2}, kAsynchronous}) {
    Cluster cluster({.servers = 3, .workers = 1, .copies = 2, .staleness = staleness});
    const auto first = cluster.connect(0);
    train(*first, 0, cluster.empty_weights(), 1, 4);
    std::atomic<bool> has_joined = false;
    std::thread joiner([&] {
      const auto second = cluster.connect(1);
      const int64_t begin = second->first_step();
      EXPECT_GE(begin, 5);
      has_joined = true;
      train(*second, 1, cluster.empty_weights(), begin, begin + 9);
      second->leave();
    });
    int64_t step = 5;
    while (!has_joined) train(*first, 0, cluster.empty_weights(), step, step), ++step;
    train(*first, 0, cluster.empty_weights(), step, step + 20);
    joiner.join();
    first->leave();
    Cluster::eventually([&] { return cluster.director().counts().workers == 0; }, "all leave");
    EXPECT_EQ(cluster.director().counts().workers_lost, 0);
  }
}

TEST(ServerClient, NobodyWaitsForAWorkerThatDied) {
  Cluster cluster({.servers = 2, .workers = 2, .staleness = 0});
  std::unique_ptr<ServerClient> dies;
  std::thread other([&] { dies = cluster.connect(1); });
  const auto lives = cluster.connect(0);
  other.join();
  dies.reset();
  train(*lives, 0, cluster.empty_weights(), 1, 3);
  EXPECT_EQ(cluster.director().counts().workers_lost, 1);
}

TEST(ServerClient, PullsStatesOfTheOptimizer) {
  Cluster cluster({.servers = 2, .workers = 1});
  cluster.run_workers([&](uint32_t, ServerClient& client) {
    auto weights = cluster.empty_weights();
    client.pull(1, weights);
    client.wait_all_pulled();
    for (size_t i = 0; i < weights.size(); ++i) {
      client.push(1, static_cast<int64_t>(i), weights[i], 0.5);
    }
    client.wait_pushed();
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      harness::assert_same_bits(client.pull_state(index, 0), weights[i], "momentum");
      const int64_t half = (weights[i].size(0) + 1) / 2;
      harness::assert_same_bits(client.pull_state(index, 0, half - 1, half),
                                weights[i].slice(0, half - 1, half).contiguous(), "a row");
      EXPECT_FALSE(client.pull_state(index, 1).defined());
    }
  });
}

// Director and server in one: answers every pull of states a second time when the next one comes.
// So do two servers when the chain changes after the first has answered.
class AnswersTwice final : public HubEvents {
 public:
  explicit AnswersTwice(const ServerRun& run) : hub_(hub_options(run, Role::kDirector), *this) {
    address_ = hub_.listen("127.0.0.1");
    hub_.start();
  }
  ~AnswersTwice() override { hub_.stop(); }
  const std::string& address() const { return address_; }

  void on_open(PeerId, Role, uint32_t) override {}
  void on_frame(PeerId peer, Frame frame) override {
    Frame answer{frame.header, {}};
    if (frame.header.kind == FrameKind::kRegister) {
      answer.header.incarnation = 1;
      hub_.send(peer, answer);
      const View view{
          .number = 1, .servers = {{0, address_}}, .workers = {{0, 1}}, .chains = {{0}}};
      return hub_.send(peer, {{.kind = FrameKind::kView, .view = 1}, bytes_of(to_text(view))});
    }
    if (frame.header.kind == FrameKind::kEvent) {
      answer.header.kind = FrameKind::kDone;
      answer.header.step = 0;
      hub_.send(peer, answer);
    }
    if (frame.header.kind == FrameKind::kPullState) {
      const auto first_row = numbers_of(frame, 2).at(0);
      answer.header.kind = FrameKind::kState;
      answer.header.step = 1;
      answer.payload = bytes_of(at::full({1}, static_cast<double>(first_row), at::kFloat));
      if (last_) hub_.send(peer, *last_);
      hub_.send(peer, answer);
      last_ = answer;
    }
  }
  void on_closed(PeerId, const std::string&) override {}
  void on_tick() override {}
  void on_failed(std::exception_ptr) override {}

 private:
  std::string address_;
  std::optional<Frame> last_;
  Hub hub_;
};

TEST(ServerClient, ASecondAnswerIsNotTakenForThatToTheNextPull) {
  const std::vector<ServedParameter> parameters{{"a", 64, 1}};
  const ServerRun run{.pieces = key_ranges(parameters, std::vector<double>{1})};
  const AnswersTwice server(run);
  ServerClient client(run, {.director = server.address(), .number = 0});
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(client.pull_state(0, 0, row, row + 1).item<float>(), static_cast<float>(row));
  }
}

TEST(ServerClient, ALostLastCopyIsALineForEveryWorker) {
  Cluster cluster({.servers = 2, .workers = 2, .staleness = kAsynchronous});
  try {
    cluster.run_workers([&](uint32_t worker, ServerClient& client) {
      train(client, worker, cluster.empty_weights(), 1, 2);
      if (worker == 0) cluster.remove_server(1);
      train(client, worker, cluster.empty_weights(), 3, 1'000'000);
    });
    FAIL() << "trained without a server";
  } catch (const CommError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("shard 1 of the parameters is lost"), std::string::npos) << text;
    EXPECT_NE(text.find("worker"), std::string::npos);
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

TEST(ServerClient, ALateAnswerNamesOperationServerAndTime) {
  Cluster cluster({.servers = 1, .workers = 2, .timeout = std::chrono::milliseconds(500)});
  std::unique_ptr<ServerClient> idle;
  std::thread other([&] { idle = cluster.connect(1); });
  const auto client = cluster.connect(0);
  other.join();
  try {
    train(*client, 0, cluster.empty_weights(), 1, 2);
    FAIL() << "did not wait for worker 1";
  } catch (const CommError& error) {
    const std::string text = error.what();
    for (const char* const part :
         {"pull of parameter 0 before step 2", "worker 0", "server 0 at tcp"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

TEST(ServerClient, AZombieIsRefused) {
  Cluster cluster({.servers = 1, .workers = 1, .staleness = kAsynchronous});
  const auto old = cluster.connect(0);
  const auto next = cluster.connect(0);
  EXPECT_THROW(train(*old, 0, cluster.empty_weights(), 1, 1'000'000), CommError);
  train(*next, 0, cluster.empty_weights(), next->first_step(), next->first_step() + 3);
}

}  // namespace
}  // namespace trireme::parallel::server_test
