// What the watch of a rank costs: per poll in the agent, and per step in the rank.
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>
#include <unistd.h>

#include "trireme/comm/recorder/recorder.h"
#include "trireme/launch/watchdog/watch.h"

namespace {

using trireme::comm::Recorder;
using trireme::comm::StepRecording;
using trireme::launch::Observation;
using trireme::launch::Watch;

// This process's own ring, full: steps of 20 calls.
class Rank {
 public:
  explicit Rank(const std::filesystem::path& folder) : recorder_({.folder = folder}) {
    group_ = recorder_.add_group("world", std::vector<int>{0});
    for (int i = 0; i < 300; ++i) step();
  }
  void step() {
    StepRecording recording(&recorder_, ++step_);
    for (int i = 0; i < 20; ++i) recorder_.issue(group_, {.operation = "all_reduce"}).finish(true);
    recording.finish({});
  }
  Recorder& recorder() { return recorder_; }

 private:
  Recorder recorder_;
  int group_ = -1;
  int64_t step_ = 0;
};

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / "trireme-watchdog-benchmark") {}
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A rank that makes two steps between polls.
void BM_PollOfARankAtWork(benchmark::State& state) {
  const Folder folder;
  Rank rank(folder.path());
  Watch watch({.folder = folder.path()});
  const std::vector<trireme::launch::WatchedProcess> processes = {{0, getpid()}};
  watch.poll(processes);
  for (auto _ : state) {
    state.PauseTiming();
    // Longer than the slack with which a watch reads calls again.
    std::this_thread::sleep_for(std::chrono::milliseconds(12));
    rank.step();
    rank.step();
    state.ResumeTiming();
    benchmark::DoNotOptimize(watch.poll(processes));
  }
}
BENCHMARK(BM_PollOfARankAtWork)->Unit(benchmark::kMicrosecond);

void BM_PollOfAnIdleRankWithEvidence(benchmark::State& state) {
  const Folder folder;
  const Rank rank(folder.path());
  Watch watch({.folder = folder.path(), .evidence_after = std::chrono::milliseconds(0)});
  const std::vector<trireme::launch::WatchedProcess> processes = {{0, getpid()}};
  for (auto _ : state) benchmark::DoNotOptimize(watch.poll(processes));
}
BENCHMARK(BM_PollOfAnIdleRankWithEvidence)->Unit(benchmark::kMicrosecond);

void BM_PollWithoutARing(benchmark::State& state) {
  Watch watch({});
  const std::vector<trireme::launch::WatchedProcess> processes = {{0, getpid()}};
  for (auto _ : state) benchmark::DoNotOptimize(watch.poll(processes));
}
BENCHMARK(BM_PollWithoutARing)->Unit(benchmark::kMicrosecond);

// In the rank, per step.
void BM_StepRecording(benchmark::State& state) {
  Recorder recorder({});
  int64_t step = 0;
  for (auto _ : state) StepRecording(&recorder, ++step).finish({});
}
BENCHMARK(BM_StepRecording);

}  // namespace

BENCHMARK_MAIN();
