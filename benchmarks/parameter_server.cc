// Measures steps with parameter servers beside data-parallel steps with all_reduce().
//   parameter_server_benchmark [rounds] [seconds]
// rounds: each runs every way once, for so many seconds
// Computing is simulated: a worker sleeps, so that two cores can stand for many. Every worker,
// server and rank is a process of one thread.
//   stragglers   three workers, 8 MiB of gradients, 20 ms of computing; one is slowed four times:
//                always the same, or another in each step
//   sparse       two workers use 2,048 rows of a table of 200,000 x 64 in each step
//   bytes        what machines send, by the counters, beside the formula of BytePS
// Prints medians of the rounds.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/numbers.h"
#include "trireme/base/random/random.h"
#include "trireme/comm/shared/shm_group.h"
#include "trireme/parallel/server/director.h"
#include "trireme/parallel/server/parameter_server.h"
#include "trireme/parallel/server/server_client.h"

namespace {

using namespace trireme;
using namespace trireme::parallel;
using Clock = std::chrono::steady_clock;

// w -= learning_rate * g.
class Sgd final : public PieceUpdate {
 public:
  void apply(at::Tensor& weights, const PieceGradient& gradient, double learning_rate,
             int64_t) override {
    if (gradient.rows.empty()) {
      if (gradient.values.sizes() == weights.sizes()) weights.sub_(gradient.values, learning_rate);
      return;
    }
    auto* const to = weights.mutable_data_ptr<float>();
    const auto* from = gradient.values.const_data_ptr<float>();
    const int64_t width = weights.size(1);
    for (const int64_t row : gradient.rows) {
      for (int64_t i = 0; i < width; ++i) {
        to[row * width + i] -= static_cast<float>(learning_rate) * *from++;
      }
    }
  }
  std::vector<PieceState> states() override { return {}; }
};

MakePiece sgd_pieces() {
  return [](const Piece& piece, int64_t) {
    return ServedPiece{at::zeros({piece.rows, piece.width}), std::make_unique<Sgd>()};
  };
}

// What the processes of one way share.
struct Shared {
  std::atomic<int64_t> steps;  // of all workers
  std::atomic<int64_t> bytes;  // sent by workers in these steps
  std::atomic<bool> stops;
  std::atomic<bool> has_address;
  char address[64];
};

struct Measured {
  double steps_per_second = 0;  // of all workers together
  double bytes_per_step = 0;    // sent by one worker in one step
  StalenessCounts staleness{};
};

template <typename Body>
pid_t start(const Body& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  at::set_num_threads(1);
  int status = 0;
  try {
    body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  std::fflush(nullptr);
  _exit(status);
}

// Counts the steps of `seconds` once each has done about ten, then lets the processes end.
Measured measure(Shared& shared, const std::vector<pid_t>& workers, double seconds) {
  while (shared.steps < 10 * std::ssize(workers))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto begin = Clock::now();
  const int64_t steps = shared.steps, bytes = shared.bytes;
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const auto count = static_cast<double>(shared.steps - steps);
  const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
  const Measured result{count / passed, static_cast<double>(shared.bytes - bytes) / count};
  shared.stops = true;
  for (const pid_t worker : workers) waitpid(worker, nullptr, 0);
  return result;
}

class SharedMemory {
 public:
  SharedMemory()
      : memory_(new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared()) {}
  ~SharedMemory() { munmap(memory_, sizeof(Shared)); }
  Shared& operator*() const { return *memory_; }

 private:
  Shared* memory_;
};

using Step = std::function<void(int64_t step)>;

// all_reduce() of `gradients` in each step. `sleep` simulates computing.
Measured run_all_reduce(int workers, const std::vector<int64_t>& sizes,
                        const std::function<void(int worker, int64_t step)>& sleep,
                        double seconds) {
  const SharedMemory memory;
  Shared& shared = *memory;
  const std::string job = "benchmark-" + unique_name();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < workers; ++rank) {
    ranks.push_back(start([&] {
      const auto world = comm::make_shm_group(job, rank, workers, {});
      std::vector<at::Tensor> gradients;
      int64_t bytes = 0;
      for (const int64_t size : sizes) {
        gradients.push_back(world->symmetric_empty({size}, at::kFloat).zero_());
        bytes += 2 * (workers - 1) * size * 4 / workers;
      }
      at::Tensor weights = at::zeros({sizes[0]}), stops = at::zeros({1});
      for (int64_t step = 1;; ++step) {
        sleep(rank, step);
        for (at::Tensor& gradient : gradients) world->all_reduce(gradient)->wait();
        for (const at::Tensor& gradient : gradients)
          weights.sub_(gradient.narrow(0, 0, sizes[0]), 0.1);
        ++shared.steps;
        shared.bytes += bytes;
        stops.fill_(shared.stops ? 1 : 0);
        world->all_reduce(stops)->wait();
        if (stops.item<float>() > 0) return;
      }
    }));
  }
  return measure(shared, ranks, seconds);
}

struct ServerWay {
  int workers = 1;
  int64_t staleness = 0;
  std::vector<ServedParameter> parameters{};
  std::vector<double> shares{1, 1};
};

// `work` is called in each worker, with its client, until it returns false.
Measured run_servers(
    const ServerWay& way,
    const std::function<void(int worker, ServerClient& client, int64_t step)>& work, double seconds,
    std::vector<int64_t>* server_bytes = nullptr) {
  const SharedMemory memory;
  Shared& shared = *memory;
  const ServerRun run{.pieces = key_ranges(way.parameters, way.shares),
                      .shards = std::ssize(way.shares),
                      .consistency = {way.staleness},
                      .secret = unique_name()};
  int counts[2];
  if (pipe(counts) != 0) std::abort();
  std::vector<pid_t> others, workers;
  others.push_back(start([&] {
    Director director(run, {.workers = way.workers});
    director.address().copy(shared.address, sizeof(shared.address) - 1);
    shared.has_address = true;
    while (!shared.stops || director.counts().workers > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    director.end();
  }));
  while (!shared.has_address) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (uint32_t i = 0; i < way.shares.size(); ++i) {
    others.push_back(start([&] {
      ParameterServer server(run, sgd_pieces(), {.director = shared.address, .number = i});
      server.wait();
      const ServerCounts found = server.counts();
      int64_t words[] = {int64_t{i}, found.sent_bytes, 0, 0, 0, 0, 0, 0};
      for (const auto& [steps, count] : found.staleness)
        words[2 + std::min<int64_t>(steps, 5)] += count;
      if (write(counts[1], words, sizeof(words)) < 0) std::abort();
    }));
  }
  for (int worker = 0; worker < way.workers; ++worker) {
    workers.push_back(start([&] {
      ServerClient client(run,
                          {.director = shared.address, .number = static_cast<uint32_t>(worker)});
      int64_t sent = client.counts().sent_bytes;
      for (int64_t step = 1; !shared.stops; ++step) {
        work(worker, client, step);
        const int64_t now = client.counts().sent_bytes;
        ++shared.steps;
        shared.bytes += now - std::exchange(sent, now);
      }
      client.leave();
    }));
  }
  Measured result = measure(shared, workers, seconds);
  for (const pid_t other : others) waitpid(other, nullptr, 0);
  if (server_bytes != nullptr) server_bytes->resize(way.shares.size());
  for (size_t i = 0; i < way.shares.size(); ++i) {
    int64_t words[8];
    if (read(counts[0], words, sizeof(words)) < 0) std::abort();
    if (server_bytes != nullptr) server_bytes->at(static_cast<size_t>(words[0])) = words[1];
    for (int64_t steps = 0; steps < 6; ++steps) {
      if (words[2 + steps] > 0) result.staleness[steps] += words[2 + steps];
    }
  }
  close(counts[0]);
  close(counts[1]);
  return result;
}

// One of three workers takes four times as long.
void straggle(bool in_turn, int worker, int64_t step) {
  const bool is_slow = in_turn ? (step * 7 / 3 + step) % 3 == worker : worker == 0;
  std::this_thread::sleep_for(std::chrono::milliseconds(is_slow ? 80 : 20));
}

void measure_stragglers(int rounds, double seconds) {
  const std::vector<int64_t> sizes(8, 256 << 10);
  std::vector<ServedParameter> parameters;
  for (const int64_t size : sizes) parameters.push_back({"p", size, 1});
  const std::vector<std::pair<std::string, int64_t>> ways{
      {"synchronous", 0}, {"staleness 4", 4}, {"asynchronous", kAsynchronous}};
  for (const bool in_turn : {false, true}) {
    std::map<std::string, std::vector<double>> found;
    std::map<std::string, StalenessCounts> staleness;
    for (int round = 0; round < rounds; ++round) {
      const auto sleep = [&](int worker, int64_t step) { straggle(in_turn, worker, step); };
      found["all-reduce"].push_back(run_all_reduce(3, sizes, sleep, seconds).steps_per_second);
      for (const auto& [name, bound] : ways) {
        const auto work = [&](int worker, ServerClient& client, int64_t step) {
          std::vector<at::Tensor> weights;
          for (const int64_t size : sizes) weights.push_back(at::empty({size}));
          client.pull(step, weights);
          client.wait_all_pulled();
          sleep(worker, step);
          for (size_t i = 0; i < weights.size(); ++i) {
            client.push(step, static_cast<int64_t>(i), weights[i], 0.1);
          }
          client.wait_pushed();
        };
        const ServerWay way{.workers = 3, .staleness = bound, .parameters = parameters};
        const Measured measured = run_servers(way, work, seconds);
        found[name].push_back(measured.steps_per_second);
        add(staleness[name], measured.staleness);
      }
    }
    std::printf(
        "\n%s\n\n| way | worker steps/s | times all-reduce | steps ahead of the slowest: pulls |\n"
        "| --- | --- | --- | --- |\n",
        in_turn ? "Another worker is slowed in each step" : "Worker 0 is always slowed");
    const double base = median(found["all-reduce"]);
    for (const std::string& name :
         {std::string("all-reduce"), ways[0].first, ways[1].first, ways[2].first}) {
      const double rate = median(found[name]);
      std::printf("| %s | %.1f | %.2f | %s |\n", name.c_str(), rate, rate / base,
                  name == "all-reduce" ? "" : to_json(staleness[name]).c_str());
    }
  }
}

void measure_sparse(int rounds, double seconds) {
  constexpr int64_t kRows = 200'000, kWidth = 64, kUsed = 2'048;
  const std::vector<ServedParameter> table{{"table", kRows, kWidth, at::kFloat, true}};
  std::map<std::string, std::vector<double>> rates, bytes;
  for (int round = 0; round < rounds; ++round) {
    const Measured dense = run_all_reduce(
        2, {kRows * kWidth}, [](int, int64_t) {}, seconds);
    rates["all-reduce of the table"].push_back(dense.steps_per_second);
    bytes["all-reduce of the table"].push_back(dense.bytes_per_step);
    for (const int64_t bound : {int64_t{0}, int64_t{4}}) {
      const auto work = [&](int worker, ServerClient& client, int64_t step) {
        std::vector<int64_t> rows;
        for (int64_t i = 0; i < kUsed; ++i)
          rows.push_back(i * (kRows / kUsed) + (step + worker) % 97);
        at::Tensor values = at::empty({kUsed, kWidth});
        client.pull(step, {at::Tensor()});
        client.pull_rows(step, 0, rows, values);
        client.wait_all_pulled();
        client.push_rows(step, 0, rows, values, 0.1);
        client.wait_pushed();
      };
      const std::string name = bound == 0 ? "rows, synchronous" : "rows, staleness 4";
      const ServerWay way{.workers = 2, .staleness = bound, .parameters = table};
      const Measured measured = run_servers(way, work, seconds);
      rates[name].push_back(measured.steps_per_second);
      bytes[name].push_back(measured.bytes_per_step);
    }
  }
  std::printf(
      "\nSparse updates\n\n| way | worker steps/s | KB sent per worker and step |\n| --- | --- | "
      "--- |\n");
  for (const auto& [name, rate] : rates) {
    std::printf("| %s | %.1f | %.1f |\n", name.c_str(), median(rate), median(bytes[name]) / 1e3);
  }
}

// Machines 0 to n-1 have a worker and a server, k more a server.
void measure_bytes() {
  std::printf(
      "\nBytes that the busiest machine sends per step, by the counters\n\n"
      "| n workers | k CPU machines | MB by formula | MB counted | ratio |\n"
      "| --- | --- | --- | --- | --- |\n");
  for (const auto& [n, k] : {std::pair<int, int>{2, 0}, {2, 1}, {3, 1}, {4, 2}}) {
    const ServerShares shares = byteps_shares(n, k);
    ServerWay way{.workers = n, .parameters = std::vector<ServedParameter>(40, {"p", 100'000, 1})};
    way.shares.assign(static_cast<size_t>(n), shares.of_worker_machine);
    way.shares.resize(static_cast<size_t>(n + k), shares.of_cpu_machine);
    constexpr int64_t kSteps = 10, kBytes = 40 * 400'000;
    std::vector<int64_t> server_bytes;
    const auto work = [&](int, ServerClient& client, int64_t step) {
      if (step > kSteps) return std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::vector<at::Tensor> weights(40, at::zeros({100'000}));
      client.pull(step, weights);
      client.wait_all_pulled();
      for (int64_t i = 0; i < 40; ++i) client.push(step, i, weights[static_cast<size_t>(i)], 0.1);
      client.wait_pushed();
    };
    run_servers(way, work, 2, &server_bytes);
    const auto pieces = key_ranges(way.parameters, way.shares);
    const auto held = shard_bytes(pieces, n + k);
    double busiest = 0;
    for (size_t i = 0; i < held.size(); ++i) {
      const bool has_worker = static_cast<int>(i) < n;
      const auto of_server = static_cast<double>(server_bytes[i]) / kSteps;
      // A worker's traffic with the server of its own machine is not on the network.
      const auto local = static_cast<double>(has_worker ? 2 * held[i] : 0);
      const double of_worker = has_worker ? kBytes + 128 * 40 : 0;
      busiest = std::max(busiest, of_server + of_worker - local);
    }
    const double formula = kBytes * shares.bytes_factor;
    std::printf("| %d | %d | %.3f | %.3f | %.4f |\n", n, k, formula / 1e6, busiest / 1e6,
                busiest / formula);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 2;
  at::set_num_threads(1);
  measure_stragglers(rounds, seconds);
  measure_sparse(rounds, seconds);
  measure_bytes();
}
