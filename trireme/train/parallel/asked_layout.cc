#include "trireme/train/parallel/asked_layout.h"

#include <algorithm>
#include <array>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/train/parallel/run_layout.h"

namespace trireme::train {
namespace {

// The axes of [parallel] that a model can be asked on, and what belongs to them.
constexpr std::array kAskingKeys = {"tensor",         "pipeline",  "expert",         "data",
                                    "zero",           "shard",     "gathered_units", "stage_layers",
                                    "expert_chunk",   "transport", "gpu_transport",  "heap_bytes",
                                    "timeout_seconds"};

}  // namespace

std::vector<std::string> asking_keys() {
  std::vector<std::string> keys;
  for (const char* const key : kAskingKeys) keys.push_back(concat("parallel.", key));
  return keys;
}

RunConfig asked_config(const RunConfig& trained, RunConfig defaults, std::unique_ptr<Task> task,
                       std::span<const Override> layout, int num_ranks) {
  const std::vector<std::string> keys = asking_keys();
  for (const auto& [key, value] : layout) {
    TRIREME_CHECK(std::ranges::find(keys, key) != keys.end(), "--", shown(key),
                  " is no key for a model that is asked; expected one of ", in_words(keys));
  }
  override_keys(defaults, layout);
  defaults.train.precision = trained.train.precision;
  defaults.train.seed = trained.train.seed;
  defaults.train.evaluate_interval = 0;
  defaults.train.micro_batch = 1;
  // No number of ranks may be refused for it.
  defaults.train.global_batch = num_ranks;
  defaults.train.uneven_batches = true;
  RunConfig config = frozen_config(defaults, std::move(task));
  resolve(config, num_ranks);
  check_layout(config);
  return config;
}

}  // namespace trireme::train
