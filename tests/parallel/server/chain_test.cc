// Chains whose servers, and workers, are killed with signal 9.
#include <atomic>
#include <csignal>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/draw.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/server/cluster.h"
#include "trireme/base/error.h"

namespace trireme::parallel::server_test {
namespace {

constexpr int64_t kMaxSteps = 4000;
constexpr int kWorkers = 2;

// w += g: the sum shows each gradient, as often as it was applied.
class Sum final : public PieceUpdate {
 public:
  void apply(at::Tensor& weights, const PieceGradient& gradient, double, int64_t) override {
    weights.add_(gradient.values);
  }
  std::vector<PieceState> states() override { return {}; }
};

// A parameter has an element for each step that a worker tries, and a push in that step is 1 there.
std::vector<ServedParameter> marks() {
  const int64_t count = kWorkers * kMaxSteps;
  return {{"a", count, 1, at::kFloat}, {"b", count, 1, at::kFloat}, {"c", count, 1, at::kFloat}};
}

MakePiece sum_pieces() {
  return [](const Piece& piece, int64_t) {
    return ServedPiece{at::zeros({piece.rows, piece.width}, piece.dtype), std::make_unique<Sum>()};
  };
}

// What a worker process tells the test, in this order: a number is one write to a pipe.
struct Word {
  int32_t worker = 0;
  int32_t is_done = 0;  // 0: about to push; 1: every copy has it
  int64_t mark = 0;
};

template <typename Body>
pid_t in_child(const Body& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = 0;
  try {
    at::set_num_threads(1);
    body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
    status = 1;
  }
  std::fflush(nullptr);
  _exit(status);
}

void end(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

class KilledRun {
 public:
  KilledRun(int64_t servers, int64_t staleness) {
    const std::vector<double> shares(static_cast<size_t>(servers), 1.0);
    run_ = {.pieces = key_ranges(marks(), shares, 16 << 10),
            .shards = servers,
            .copies = 2,
            .consistency = {staleness},
            .secret = "secret",
            .config = "",
            .timeout = std::chrono::seconds(60)};
    EXPECT_EQ(pipe(words_), 0);
    // The director has a process of its own, which is never killed: forking needs one thread.
    EXPECT_EQ(pipe(orders_), 0);
    EXPECT_EQ(pipe(facts_), 0);
    director_ = in_child([&] { direct(); });
    EXPECT_EQ(read(facts_[0], address_, sizeof(address_)), ssize_t{sizeof(address_)});
    for (int64_t i = 0; i < servers; ++i) start_server();
    for (int worker = 0; worker < kWorkers; ++worker) start_worker(worker);
  }
  ~KilledRun() {
    for (const auto& [pid, number] : servers_) kill(pid, SIGKILL);
    for (const auto& [worker, pid] : workers_) end(pid);
    for (const auto& [pid, number] : servers_) end(pid);
    end(director_);
    for (const auto* const ends : {words_, orders_, facts_}) close(ends[0]), close(ends[1]);
  }

  void start_server() {
    const int number = num_started_++;
    servers_[in_child([&] {
      ParameterServer server(run_, sum_pieces(),
                             {.director = address_, .number = static_cast<uint32_t>(number)});
      server.wait();
    })] = number;
  }

  void start_worker(int worker) {
    const int64_t first_mark = next_mark_[worker];
    workers_[worker] = in_child([&] { work(worker, first_mark); });
  }

  void kill_a_server(harness::Draw& draw) {
    const auto victim = std::next(servers_.begin(), draw.below<int64_t>(std::ssize(servers_)));
    end(victim->first);
    servers_.erase(victim);
    ++num_killed_;
  }

  void kill_a_worker(harness::Draw& draw) {
    const int worker = draw.below(kWorkers);
    end(workers_.at(worker));
    read_words();
    next_mark_[worker] = begun_[worker] + 1;
    start_worker(worker);
  }

  void pause(int microseconds) {
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
    read_words();
  }

  // Waits until every chain has both copies again.
  void heal() {
    for (int i = 0; i < 20'000; ++i) {
      const DirectorCounts seen = counts();
      if (seen.is_whole && seen.servers_lost == num_killed_ &&
          seen.servers == std::ssize(servers_)) {
        return;
      }
      pause(1000);
    }
    FAIL() << "the chains do not get whole again";
  }

  DirectorCounts counts() {
    const char order = 'c';
    DirectorCounts counts;
    EXPECT_EQ(write(orders_[1], &order, 1), 1);
    EXPECT_EQ(read(facts_[0], &counts, sizeof(counts)), ssize_t{sizeof(counts)});
    return counts;
  }

  // Ends the workers in the middle of what they do, and compares with what the servers have.
  void check() {
    for (const auto& [worker, pid] : workers_) end(pid);
    workers_.clear();
    read_words();
    ServerClient client(run_, {.director = address_, .number = 77});
    std::vector<at::Tensor> weights;
    for (const ServedParameter& parameter : marks()) {
      weights.push_back(at::empty({parameter.rows, 1}, parameter.dtype));
    }
    client.pull(0, weights);
    client.wait_all_pulled();
    client.leave();
    int64_t num_done = 0;
    for (int worker = 0; worker < kWorkers; ++worker) {
      for (int64_t mark = 0; mark < kMaxSteps; ++mark) {
        for (const at::Tensor& whole : weights) {
          const float times = whole.const_data_ptr<float>()[worker * kMaxSteps + mark];
          const bool is_done = done_[worker].contains(mark);
          num_done += is_done ? 1 : 0;
          if (is_done) ASSERT_EQ(times, 1) << "worker " << worker << ", mark " << mark;
          ASSERT_LE(times, mark <= begun_[worker] ? 1 : 0) << "worker " << worker << " " << mark;
        }
      }
    }
    EXPECT_GT(num_done, 100);
  }

 private:
  void direct() {
    Director director(run_, {.workers = kWorkers});
    char address[64] = {};
    director.address().copy(address, sizeof(address) - 1);
    if (write(facts_[1], address, sizeof(address)) < 0) return;
    char order = 0;
    while (read(orders_[0], &order, 1) == 1) {
      const DirectorCounts counts = director.counts();
      if (write(facts_[1], &counts, sizeof(counts)) < 0) return;
    }
  }

  void work(int worker, int64_t mark) {
    ServerClient client(run_, {.director = address_, .number = static_cast<uint32_t>(worker)});
    std::vector<at::Tensor> weights, gradients;
    for (const ServedParameter& parameter : marks()) {
      weights.push_back(at::empty({parameter.rows, 1}, parameter.dtype));
      gradients.push_back(at::zeros({parameter.rows, 1}, parameter.dtype));
    }
    for (int64_t step = client.first_step(); mark < kMaxSteps; ++step, ++mark) {
      client.pull(step, weights);
      client.wait_all_pulled();
      const int64_t place = worker * kMaxSteps + mark;
      say({worker, 0, mark});
      for (size_t i = 0; i < gradients.size(); ++i) {
        gradients[i].mutable_data_ptr<float>()[place] = 1;
        client.push(step, static_cast<int64_t>(i), gradients[i], 1);
      }
      client.wait_pushed();
      say({worker, 1, mark});
      for (const at::Tensor& gradient : gradients) gradient.mutable_data_ptr<float>()[place] = 0;
    }
    pause(1 << 30);
  }

  void say(const Word& word) {
    if (write(words_[1], &word, sizeof(word)) != ssize_t{sizeof(word)}) _exit(1);
  }

  void read_words() {
    Word word;
    int left = 0;
    while (ioctl(words_[0], FIONREAD, &left) == 0 && left >= static_cast<int>(sizeof(word))) {
      ASSERT_EQ(read(words_[0], &word, sizeof(word)), ssize_t{sizeof(word)});
      begun_[word.worker] = std::max(begun_[word.worker], word.mark);
      if (word.is_done != 0) done_[word.worker].insert(word.mark);
    }
  }

  ServerRun run_;
  int words_[2], orders_[2], facts_[2];
  char address_[64] = {};
  pid_t director_ = 0;
  int num_started_ = 0;
  int64_t num_killed_ = 0;  // servers
  std::map<pid_t, int> servers_;
  std::map<int, pid_t> workers_;
  int64_t next_mark_[kWorkers] = {};
  int64_t begun_[kWorkers] = {-1, -1};
  std::set<int64_t> done_[kWorkers];
};

void survive(int64_t servers, int64_t staleness, int kills) {
  KilledRun run(servers, staleness);
  harness::Draw draw(static_cast<uint64_t>(servers * 100 + staleness));
  for (int i = 0; i < kills && !testing::Test::HasFatalFailure(); ++i) {
    run.heal();
    run.pause(draw.below(30'000));
    if (draw.below(3) == 0) {
      run.kill_a_worker(draw);
    } else {
      run.kill_a_server(draw);
      run.start_server();
    }
  }
  run.heal();
  run.pause(20'000);
  run.check();
}

TEST(Chain, NoAcknowledgedUpdateIsLostOrAppliedTwiceInFiftyKillsWithBoundedStaleness) {
  survive(3, 2, 50);
}

TEST(Chain, AsynchronousUpdatesSurviveFiftyKills) { survive(2, kAsynchronous, 50); }

TEST(Chain, SynchronousUpdatesSurviveTwentyKills) { survive(2, 0, 20); }

}  // namespace
}  // namespace trireme::parallel::server_test
