// Small files that a run leaves for those who look at it: what the planner predicted of it, and
// what its ranks held when their memory was fullest. Anyone may have written them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::watch {

// By the names of metrics: "step_seconds" -> 0.12. Only finite numbers of at least 0.
using Prediction = std::map<std::string, double>;

// RUN/prediction.json; empty when there is none, or it is damaged.
Prediction read_prediction(const std::filesystem::path& run_folder);
Prediction parse_prediction(std::string_view text);

struct HeldTensor {
  int64_t bytes = 0;
  std::string kind{};
  std::string made_by{};  // an operator
  std::string unit{};     // of the model
};
struct MemoryPeak {
  int64_t step = 0;
  int64_t rank = 0;
  int64_t total_bytes = 0;
  int64_t failed_bytes = 0;  // that could not be allocated then; 0: it is only the peak
  std::vector<std::pair<std::string, int64_t>> kinds{};
  std::vector<HeldTensor> largest{};
};

// RUN/memory/rank-*.json: of `rank`, or of the rank whose memory ran out, or of the fullest.
// Nothing when there is none that can be read.
std::optional<MemoryPeak> read_memory_peak(const std::filesystem::path& run_folder,
                                           std::optional<int64_t> rank);
std::optional<MemoryPeak> parse_memory_peak(std::string_view text);

}  // namespace trireme::watch
