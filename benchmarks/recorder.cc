// The cost of the flight recorder per call: issue, start and finish, on a ring in memory and in a
// file.
#include <filesystem>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "trireme/comm/recorder/recorder.h"

namespace {

using trireme::comm::Recorder;

const std::vector<int64_t> kShape = {1024, 256};

void record(benchmark::State& state, Recorder& recorder, bool is_background) {
  const int group = recorder.add_group("world", std::vector<int>{0, 1});
  for (auto _ : state) {
    const auto entry = recorder.issue(group, {.operation = "all_reduce",
                                              .shape = kShape,
                                              .elements = 1024 * 256,
                                              .dtype = 6,
                                              .reduce_op = 0,
                                              .is_background = is_background});
    if (is_background) entry.start();
    entry.finish(true);
  }
}

void BM_InMemory(benchmark::State& state) {
  Recorder recorder({});
  record(state, recorder, /*is_background=*/false);
}
BENCHMARK(BM_InMemory);

void BM_InFile(benchmark::State& state) {
  const auto folder = std::filesystem::temp_directory_path() / "trireme-recorder-benchmark";
  {
    Recorder recorder({.folder = folder});
    record(state, recorder, /*is_background=*/state.range(0) != 0);
  }
  std::filesystem::remove_all(folder);
}
BENCHMARK(BM_InFile)->ArgName("background")->Arg(0)->Arg(1);

void BM_TwoThreads(benchmark::State& state) {
  static Recorder* const recorder = new Recorder({});  // shared by the benchmark's threads
  record(state, *recorder, /*is_background=*/false);
}
BENCHMARK(BM_TwoThreads)->Threads(2);

// The share of the clock in these costs.
void BM_Clock(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(std::chrono::steady_clock::now());
}
BENCHMARK(BM_Clock);

}  // namespace

BENCHMARK_MAIN();
