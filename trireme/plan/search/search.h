// Searches the layouts of a model on a cluster: axes, ZeRO stage, microbatch, recomputation and
// schedule. Ranks those that fit by predicted time, and says why the others lost.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trireme/plan/device/cluster.h"
#include "trireme/plan/step/step_prediction.h"

namespace trireme::plan {

enum class Objective { kTime, kCost, kMemory };
inline constexpr Choice<Objective> kObjectives[] = {
    {"time", Objective::kTime}, {"cost", Objective::kCost}, {"memory", Objective::kMemory}};

// More are refused.
inline constexpr int64_t kMostDevices = 1 << 20;
inline constexpr int64_t kMostMicrobatches = 1 << 16;  // as parallel::make_schedule() takes

std::vector<int64_t> divisors(int64_t n);  // ascending

struct SearchOptions {
  Objective objective = Objective::kTime;
  // Values that keys of a candidate must have: "tensor" -> "8". See candidate_keys().
  std::map<std::string, std::string> fixed{};
  int64_t most_devices = 0;                          // 0: all of the cluster
  std::string recompute_modules = "attention_core";  // of the selective recomputation
  bool must_recompute = false;                       // leaves out "none"
  size_t num_best = 5;
  // Share of a device's memory that a layout may fill.
  double memory_share = 0.95;
};

// The keys that the search chooses, as "tensor" or "recompute".
std::vector<std::string> candidate_keys();
// A candidate's keys with their values as a config has them: "parallel.tensor" -> "8".
std::vector<std::pair<std::string, std::string>> settings_of(const Workload& work);
// "tensor 8 x pipeline 4 (1f1b) x data 2, zero 1, microbatch 2, recompute full".
std::string describe(const Workload& work);

struct Plan {
  Workload work{};
  StageLayout layout{};
  StepPrediction step{};
};

struct SearchResult {
  // Best first, each with the best schedule of those tried; empty: nothing fits.
  std::vector<Plan> best{};
  // The fastest that does not fit, if it is faster than the best, and the one that needs least.
  std::vector<Plan> too_large{};
  int64_t num_candidates = 0;
  int64_t num_out_of_memory = 0;
  int64_t num_illegal = 0;
  std::string refusal{};  // of the first illegal one
};

// "": the runtime can run the candidate; otherwise why not.
using Legality = std::function<std::string(const Workload&)>;

// `base` has the model, the global batch, the sizes of numbers, and the keys that are not searched.
// Throws: ConfigError when a fixed key is none of candidate_keys() or has no such value, or there
//         are more than kMostDevices
SearchResult search(const Workload& base, const Cluster& cluster, const SearchOptions& options,
                    const Legality& legality);

}  // namespace trireme::plan
