#include "trireme/parallel/server/parameter_server.h"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/server/cluster.h"
#include "trireme/base/error.h"

namespace trireme::parallel::server_test {
namespace {

// What data-parallel ranks with all_reduce() have after `steps` steps.
std::vector<at::Tensor> all_reduce_reference(const std::vector<ServedParameter>& parameters,
                                             int workers, int64_t steps) {
  std::vector<at::Tensor> result;
  std::mutex mutex;
  harness::run_ranks(workers, [&](comm::Communicator& world) {
    std::vector<at::Tensor> weights;
    std::vector<Momentum> rules;
    for (size_t i = 0; i < parameters.size(); ++i) {
      weights.push_back(initial_weights(parameters[i], static_cast<int64_t>(i)));
      rules.emplace_back(weights.back());
    }
    for (int64_t step = 1; step <= steps; ++step) {
      for (size_t i = 0; i < weights.size(); ++i) {
        at::Tensor gradient = gradient_of(weights[i], static_cast<uint32_t>(world.rank()), step);
        world.all_reduce(gradient)->wait();
        rules[i].apply(weights[i], {.values = gradient}, 0.01 * static_cast<double>(step), step);
      }
    }
    const std::lock_guard lock(mutex);
    if (world.rank() == 0) result = weights;
  });
  return result;
}

void assert_same(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    harness::assert_same_bits(actual[i], expected[i], "parameter " + std::to_string(i));
  }
}

TEST(ParameterServer, SynchronousStepsHaveTheBitsOfAllReduce) {
  for (int workers = 1; workers <= 4; ++workers) {
    for (int64_t servers = 1; servers <= 3; ++servers) {
      for (int64_t copies = 1; copies <= servers; ++copies) {
        Cluster cluster({.servers = servers, .workers = workers, .copies = copies});
        cluster.run_workers([&](uint32_t worker, ServerClient& client) {
          EXPECT_EQ(client.first_step(), 1);
          train(client, worker, cluster.empty_weights(), 1, 5);
        });
        assert_same(cluster.pull_now(), all_reduce_reference(cluster.parameters(), workers, 5));
      }
    }
  }
}

TEST(ParameterServer, SixteenBitGradientsAreSummedAsAllReduceDoes) {
  const auto parameters = small_parameters(at::kBFloat16);
  Cluster cluster({.servers = 2, .workers = 3, .parameters = parameters});
  cluster.run_workers([&](uint32_t worker, ServerClient& client) {
    train(client, worker, cluster.empty_weights(), 1, 4);
  });
  assert_same(cluster.pull_now(), all_reduce_reference(parameters, 3, 4));
}

TEST(ParameterServer, OneAsynchronousWorkerHasTheBitsOfASynchronousOne) {
  Cluster cluster({.servers = 3, .workers = 1, .staleness = kAsynchronous});
  cluster.run_workers([&](uint32_t worker, ServerClient& client) {
    train(client, worker, cluster.empty_weights(), 1, 20);
  });
  assert_same(cluster.pull_now(), all_reduce_reference(cluster.parameters(), 1, 20));
}

TEST(ParameterServer, NoWorkerIsAheadOfTheSlowestByMoreThanTheBound) {
  for (const int64_t staleness : {0, 1, 3}) {
    constexpr int64_t kWorkers = 3, kSteps = 25;
    Cluster cluster({.servers = 2, .workers = kWorkers, .staleness = staleness});
    std::array<std::atomic<int64_t>, kWorkers> finished{};
    int64_t most = 0;
    std::mutex mutex;
    cluster.run_workers([&](uint32_t worker, ServerClient& client) {
      harness::Draw draw(worker + 17);
      auto weights = cluster.empty_weights();
      for (int64_t step = 1; step <= kSteps; ++step) {
        client.pull(step, weights);
        client.wait_all_pulled();
        for (const auto& other : finished) {
          const int64_t ahead = step - 1 - other;
          EXPECT_LE(ahead, staleness);
          const std::lock_guard lock(mutex);
          most = std::max(most, ahead);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(draw.below(4'000)));
        std::vector<at::Tensor> gradients;
        for (size_t i = 0; i < weights.size(); ++i) {
          gradients.push_back(gradient_of(weights[i], worker, step));
        }
        ++finished[worker];  // from here on the servers may know
        for (size_t i = 0; i < weights.size(); ++i) {
          client.push(step, static_cast<int64_t>(i), gradients[i], 0.01);
        }
        client.wait_pushed();
      }
      finished[worker] = kSteps;
    });
    const StalenessCounts counts = cluster.staleness();
    EXPECT_LE(counts.rbegin()->first, staleness);
    int64_t pulls = 0;
    for (const auto& [steps, count] : counts) pulls += count;
    EXPECT_EQ(pulls, kWorkers * kSteps * std::ssize(cluster.run().pieces));
    if (staleness > 0) EXPECT_GT(counts.rbegin()->first, 0) << most;
  }
}

// Weights that every worker pulled, in every step: what a replay must give again.
using Pulled = std::map<std::pair<uint32_t, int64_t>, std::vector<at::Tensor>>;

Pulled train_recorded(Cluster& cluster, int64_t steps, bool delays) {
  Pulled pulled;
  std::mutex mutex;
  cluster.run_workers([&](uint32_t worker, ServerClient& client) {
    harness::Draw draw(worker + 5);
    for (int64_t step = 1; step <= steps; ++step) {
      auto weights = cluster.empty_weights();
      client.pull(step, weights);
      client.wait_all_pulled();
      if (delays) std::this_thread::sleep_for(std::chrono::microseconds(draw.below(2'000)));
      std::vector<at::Tensor> gradients;
      for (size_t i = 0; i < weights.size(); ++i) {
        gradients.push_back(gradient_of(weights[i], worker, step));
        client.push(step, static_cast<int64_t>(i), gradients.back(), 0.01);
      }
      client.wait_pushed();
      const std::lock_guard lock(mutex);
      pulled[{worker, step}] = weights;
    }
  });
  return pulled;
}

TEST(ParameterServer, AnAsynchronousRunIsReplayedBitForBit) {
  const harness::TemporaryFolder folder;
  for (const int64_t staleness : {int64_t{4}, kAsynchronous}) {
    const std::string log = (folder / ("log" + std::to_string(staleness))).string();
    std::filesystem::create_directory(log);
    ClusterOptions options{.servers = 2, .workers = 3, .staleness = staleness, .log = log};
    Pulled first;
    {
      Cluster cluster(options);
      first = train_recorded(cluster, 12, /*delays=*/true);
    }
    options.replay = std::exchange(options.log, "");
    for (int again = 0; again < 2; ++again) {
      Cluster cluster(options);
      const Pulled second = train_recorded(cluster, 12, /*delays=*/again == 0);
      ASSERT_EQ(second.size(), first.size());
      for (const auto& [key, weights] : first) assert_same(second.at(key), weights);
    }
  }
}

TEST(ParameterServer, AReplayEndsWithItsLog) {
  const harness::TemporaryFolder folder;
  ClusterOptions options{.workers = 2, .staleness = 2, .log = folder.path().string()};
  {
    Cluster cluster(options);
    train_recorded(cluster, 3, false);
  }
  options.replay = std::exchange(options.log, "");
  Cluster cluster(options);
  try {
    train_recorded(cluster, 4, false);
    FAIL() << "trained beyond the log";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("the log ends here"), std::string::npos)
        << error.what();
  }
}

TEST(ParameterServer, AReplayKeepsOneCopy) {
  const harness::TemporaryFolder folder;
  const ClusterOptions options{.servers = 2, .copies = 2, .replay = folder.path().string()};
  EXPECT_THROW(Cluster{options}, ConfigError);
}

TEST(ParameterServer, BytesPerStepAreThoseOfTheHeader) {
  for (int workers = 1; workers <= 3; ++workers) {
    Cluster cluster({.servers = 2, .workers = workers});
    const auto pieces = std::ssize(cluster.run().pieces);
    int64_t bytes = 0;
    for (const int64_t of_shard : shard_bytes(cluster.run().pieces, 2)) bytes += of_shard;
    cluster.run_workers([&](uint32_t worker, ServerClient& client) {
      const auto weights = cluster.empty_weights();
      train(client, worker, weights, 1, 1);
      const ClientCounts before = client.counts();
      train(client, worker, weights, 2, 6);
      Cluster::eventually(
          [&] {
            return client.counts().sent_bytes >= before.sent_bytes + 5 * (bytes + 128 * pieces);
          },
          "bytes sent");
      EXPECT_EQ(client.counts().sent_bytes - before.sent_bytes, 5 * (bytes + 128 * pieces));
      EXPECT_EQ(client.counts().resent, 0);
      Cluster::eventually(
          [&] {
            return client.counts().received_bytes >=
                   before.received_bytes + 5 * (bytes + 128 * pieces);
          },
          "bytes received");
    });
    // Each shard sees everybody leave.
    const int64_t events = workers * (6 * pieces) + 2 * workers;
    Cluster::eventually(
        [&] {
          return cluster.server(0).counts().events + cluster.server(1).counts().events == events;
        },
        "events");
  }
}

TEST(ParameterServer, AChainSendsEveryPushOnceMorePerLink) {
  for (int64_t copies = 1; copies <= 3; ++copies) {
    constexpr int64_t kWorkers = 2, kSteps = 4;
    Cluster cluster({.servers = 3, .workers = kWorkers, .copies = copies, .staleness = 5});
    const auto pieces = std::ssize(cluster.run().pieces);
    int64_t bytes = 0;
    for (const int64_t of_shard : shard_bytes(cluster.run().pieces, 3)) bytes += of_shard;
    const auto sent = [&] {
      int64_t all = 0;
      for (size_t i = 0; i < 3; ++i) all += cluster.server(i).counts().sent_bytes;
      return all;
    };
    std::array<std::unique_ptr<ServerClient>, kWorkers> clients;
    std::thread other([&] { clients[1] = cluster.connect(1); });
    clients[0] = cluster.connect(0);
    other.join();
    const auto train_both = [&](int64_t first, int64_t last) {
      for (int64_t step = first; step <= last; ++step) {
        for (uint32_t worker : {0U, 1U}) {
          train(*clients[worker], worker, cluster.empty_weights(), step, step);
        }
      }
    };
    train_both(1, 1);
    const int64_t per_step =
        kWorkers * (bytes + 128 * pieces + (copies - 1) * (bytes + 64 * pieces + 64 * pieces));
    const auto settled = [&] {  // nothing is sent for a while
      int64_t now = sent();
      for (int quiet = 0; quiet < 20; ++quiet) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        const int64_t before = std::exchange(now, sent());
        if (now != before) quiet = 0;
      }
      return now;
    };
    const int64_t begin = settled();
    train_both(2, 1 + kSteps);
    Cluster::eventually([&] { return sent() >= begin + kSteps * per_step; }, "bytes sent");
    EXPECT_EQ(settled() - begin, kSteps * per_step) << copies << " copies";
  }
}

// `n` machines with a worker and a server, `k` machines with a server: every machine sends and
// receives the same number of bytes over the network.
void check_byteps_bytes(int64_t n, int64_t k, int64_t num_pieces) {
  const ServerShares shares = byteps_shares(n, k);
  Cluster cluster(
      {.servers = n + k, .workers = n, .parameters = {{"all", 64 * num_pieces, 1}}, .shares = [&] {
         std::vector<double> all(static_cast<size_t>(n), shares.of_worker_machine);
         all.resize(static_cast<size_t>(n + k), shares.of_cpu_machine);
         return all;
       }()});
  ASSERT_EQ(std::ssize(cluster.run().pieces), num_pieces);
  const int64_t bytes = 256 * num_pieces, steps = 3;
  std::vector<int64_t> sent(static_cast<size_t>(n + k));
  const auto server_bytes = [&](size_t i) { return cluster.server(i).counts().sent_bytes; };
  std::mutex mutex;
  cluster.run_workers([&](uint32_t worker, ServerClient& client) {
    const int64_t before = client.counts().sent_bytes;
    train(client, worker, cluster.empty_weights(), 1, steps);
    const std::lock_guard lock(mutex);
    sent[worker] += client.counts().sent_bytes - before;
  });
  const auto held = shard_bytes(cluster.run().pieces, n + k);
  for (size_t i = 0; i < held.size(); ++i) {
    const int64_t pieces = held[i] / 256;
    const int64_t of_worker = static_cast<int64_t>(i) < n ? steps * (bytes + 128 * num_pieces) : 0;
    const int64_t of_server = steps * n * (held[i] + 128 * pieces);
    // Besides, the servers answer once when a worker takes part, and register.
    EXPECT_GE(server_bytes(i), of_server);
    EXPECT_LE(server_bytes(i), of_server + 64 * n + 128);
    if (static_cast<int64_t>(i) < n) EXPECT_EQ(sent[i], of_worker);
    // What stays within the machine: its worker's traffic with its own server.
    const int64_t local = static_cast<int64_t>(i) < n ? 2 * steps * held[i] : 0;
    const int64_t network =
        steps * (static_cast<int64_t>(i) < n ? bytes : 0) + steps * n * held[i] - local;
    EXPECT_NEAR(static_cast<double>(network),
                static_cast<double>(steps * bytes) * shares.bytes_factor, 1e-6);
  }
}

TEST(ParameterServer, BytesOverTheNetworkAreThoseOfBytePS) {
  check_byteps_bytes(2, 0, 6);
  check_byteps_bytes(2, 1, 8);
  check_byteps_bytes(3, 0, 9);
  check_byteps_bytes(4, 2, 10);
}

TEST(ParameterServer, SparseRowsAreSummedByRowAndApplied) {
  for (const int64_t staleness : {int64_t{0}, kAsynchronous}) {
    const std::vector<ServedParameter> parameters{{"table", 50, 3, at::kDouble, true},
                                                  {"dense", 4, 1, at::kDouble}};
    const int workers = staleness == 0 ? 3 : 1;
    Cluster cluster({.servers = 2,
                     .workers = workers,
                     .staleness = staleness,
                     .parameters = parameters,
                     .max_piece_bytes = 240});
    const auto rows_of = [](uint32_t worker, int64_t step) {
      std::vector<int64_t> rows;
      for (int64_t row = worker; row < 50; row += 3 + step) rows.push_back(row);
      return step % 3 == 0 ? std::vector<int64_t>{} : rows;
    };
    cluster.run_workers([&](uint32_t worker, ServerClient& client) {
      auto weights = cluster.empty_weights();
      for (int64_t step = 1; step <= 6; ++step) {
        const std::vector<int64_t> rows = rows_of(worker, step);
        at::Tensor used = at::empty({std::ssize(rows), 3}, at::kDouble);
        client.pull(step, {at::Tensor(), weights[1]});
        client.pull_rows(step, 0, rows, used);
        client.wait_all_pulled();
        const at::Tensor gradients = gradient_of(used, worker, step);
        const at::Tensor dense = gradient_of(weights[1], worker, step);
        client.push_rows(step, 0, rows, gradients, 0.1);
        client.push(step, 1, dense, 0.1);
        client.wait_pushed();
      }
    });
    // Plainly: rows that nobody used keep weights and momentum.
    at::Tensor weights = initial_weights(parameters[0], 0);
    Momentum rule(weights);
    for (int64_t step = 1; step <= 6; ++step) {
      std::map<int64_t, at::Tensor> sums;
      for (uint32_t worker = 0; worker < static_cast<uint32_t>(workers); ++worker) {
        for (const int64_t row : rows_of(worker, step)) {
          const at::Tensor gradient = gradient_of(weights[row], worker, step);
          sums[row] = sums.contains(row) ? sums[row] + gradient : gradient;
        }
      }
      std::vector<int64_t> rows;
      std::vector<at::Tensor> values;
      for (const auto& [row, sum] : sums) rows.push_back(row), values.push_back(sum);
      if (!rows.empty()) rule.apply(weights, {rows, at::stack(values)}, 0.1, step);
    }
    harness::assert_same_bits(cluster.pull_now()[0], weights, "table");
  }
}

TEST(ParameterServer, AServerOfAnotherConfigIsRefusedInOneLine) {
  Cluster cluster({.servers = 1, .workers = 1, .timeout = std::chrono::seconds(5)});
  ServerRun other = cluster.run();
  other.config = "another";
  ParameterServer server(other, momentum_pieces(cluster.parameters()),
                         {.director = cluster.director().address()});
  try {
    server.wait_for(std::chrono::seconds(20));
    FAIL() << "served another config";
  } catch (const CommError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("another config"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

// Making them may take longer than peers wait for an answer.
TEST(ParameterServer, MakesItsFirstPiecesBeforeItRegisters) {
  const std::vector<ServedParameter> parameters = small_parameters();
  const ServerRun run{
      .pieces = key_ranges(parameters, std::vector<double>(3, 1.0), 256), .shards = 3, .copies = 2};
  Director director(run, {});
  std::map<int64_t, int64_t> made;  // of each shard
  const MakePiece make = momentum_pieces(parameters);
  ParameterServer server(run,
                         [&](const Piece& piece, int64_t index) {
                           EXPECT_EQ(director.counts().servers, 0);
                           ++made[piece.shard];
                           return make(piece, index);
                         },
                         {.director = director.address(), .number = 0});
  std::map<int64_t, int64_t> expected;
  for (const Piece& piece : run.pieces) expected[piece.shard] += piece.shard != 1 ? 1 : 0;
  std::erase_if(expected, [](const auto& entry) { return entry.second == 0; });
  EXPECT_EQ(made, expected) << "it heads the chain of shard 0, and is second in that of shard 2";
}

TEST(ParameterServer, EndsWithTheProblemThatTheDirectorTells) {
  Cluster cluster({.servers = 1, .workers = 1});
  // One that comes later waits for a director, as long as it may take.
  Cluster::eventually([&] { return cluster.director().counts().servers == 1; }, "a server");
  cluster.director().end("the disk is full");
  EXPECT_THROW(cluster.server(0).wait_for(std::chrono::seconds(20)), CommError);
}

class FailingRule final : public PieceUpdate {
 public:
  void apply(at::Tensor&, const PieceGradient&, double, int64_t) override {
    throw ConfigError("no such rule");
  }
  std::vector<PieceState> states() override { return {}; }
};

// So the program ends with the error's own exit code, and is not restarted in vain.
TEST(ParameterServer, ThrowsItsOwnFailureAsItIs) {
  const std::vector<ServedParameter> parameters{{"a", 4, 1}};
  const ServerRun run{.pieces = key_ranges(parameters, std::vector<double>{1}),
                      .consistency = {kAsynchronous},
                      .timeout = std::chrono::seconds(20)};
  Director director(run, {});
  ParameterServer server(run,
                         [](const Piece&, int64_t) {
                           return ServedPiece{at::zeros({4, 1}), std::make_unique<FailingRule>()};
                         },
                         {.director = director.address()});
  ServerClient client(run, {.director = director.address()});
  const at::Tensor gradient = at::ones({4, 1});
  client.push(1, 0, gradient, 0.5);
  EXPECT_THROW(client.wait_pushed(), CommError);
  try {
    server.wait_for(std::chrono::seconds(20));
    FAIL() << "served without a rule";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "no such rule");
  }
}

TEST(ParameterServer, LosesItsRunWithItsDirector) {
  const ServerRun run{.pieces = key_ranges(small_parameters(), std::vector<double>{1}),
                      .config = ""};
  auto director = std::make_unique<Director>(run, DirectorOptions{});
  ParameterServer server(run, momentum_pieces(small_parameters()),
                         {.director = director->address()});
  Cluster::eventually([&] { return director->counts().servers == 1; }, "the server has come");
  director.reset();
  EXPECT_THROW(server.wait_for(std::chrono::seconds(20)), CommError);
}

}  // namespace
}  // namespace trireme::parallel::server_test
