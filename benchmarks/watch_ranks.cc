// Writes RUN/series/ranks.trs as a run of many ranks would: a step of every rank after the other,
// through the writer that training uses. One rank is slower than the others. For watch_scale.py.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/train/metrics/series_writer.h"

namespace {

using namespace trireme;

constexpr int64_t kSlowRank = 3;
constexpr float kOwnSeconds = 0.1F, kSlower = 1.5F;

train::SeriesShape shape_of(int64_t num_ranks) {
  return {.num_ranks = num_ranks,
          .columns = {"step_seconds", "own_seconds", "data_seconds", "wait_seconds", "tokens",
                      "communication_seconds/tensor", "communication_seconds/data",
                      "memory_bytes/weights", "memory_bytes/gradients", "memory_bytes/states",
                      "memory_bytes/activations", "memory_bytes/other", "peak_bytes"}};
}

// Numbers that differ by rank and step, so that nothing is the same twice.
void fill(int64_t step, const train::SeriesShape& shape, std::vector<float>& values) {
  uint64_t state = static_cast<uint64_t>(step) * 0x9e3779b97f4a7c15ULL + 1;
  for (size_t i = 0; i < values.size(); ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const float noise = static_cast<float>(state >> 40) / static_cast<float>(1 << 24);
    const size_t column = i % shape.columns.size();
    const bool is_slow = static_cast<int64_t>(i / shape.columns.size()) == kSlowRank;
    values[i] = column < 2 ? kOwnSeconds * (is_slow ? kSlower : 1) + noise / 100 : noise;
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: watch_ranks_benchmark RUN RANKS STEPS\n");
    return 2;
  }
  const train::SeriesShape shape = shape_of(std::atoll(words[2]));
  const int64_t num_steps = std::atoll(words[3]);
  std::vector<float> values(static_cast<size_t>(shape.num_ranks) * shape.columns.size());
  std::filesystem::create_directories(words[1]);
  train::SeriesWriter writer({.run_folder = words[1]});
  for (int64_t step = 1; step <= num_steps; ++step) {
    fill(step, shape, values);
    writer.add(step, shape, values);
    if (step % 16 == 0) {
      std::vector<train::WaitRecord> waits;
      for (int32_t rank = 0; rank < shape.num_ranks; ++rank) {
        if (rank != kSlowRank)
          waits.push_back({step, "data", rank, static_cast<int32_t>(kSlowRank), 0.8F});
      }
      writer.add(std::move(waits));
    }
  }
  writer.flush();
  if (const auto problem = writer.take_problem()) {
    std::fprintf(stderr, "%s\n", problem->c_str());
    return 1;
  }
  return 0;
}
