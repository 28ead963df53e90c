#include "trireme/train/parallel/memory_check.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"

namespace trireme::train::inline internal {
namespace {

std::string gibibytes(double bytes) {
  std::ostringstream text;
  text << std::setprecision(bytes < 1000.0 * (1 << 30) ? 3 : 15)
       << std::max(bytes / (1 << 30), 0.001) << " GiB";
  return text.str();
}

std::string advice(const RunConfig& config, const MemoryNeed& need) {
  const MemoryKeys keys = config.task->memory_keys();
  const auto lower = [](const char* key, int64_t value, std::vector<std::string> others) {
    others.insert(others.begin(), concat(key, " (", value, ")"));
    return "lower " + in_words(others);
  };
  if (need.samples >= std::max(need.states, need.activations)) {
    return lower("train.global_batch", config.train.global_batch, keys.activations) +
           ", whose samples are most of it";
  }
  if (need.activations >= need.states) {
    return lower("train.micro_batch", config.train.micro_batch, keys.activations) +
           ", whose activations are most of it, or set train.recompute = \"full\"";
  }
  const std::string smaller =
      keys.states.empty() ? "make the model smaller" : "lower " + in_words(keys.states);
  return smaller +
         ", whose weights and optimizer states are most of it, or shard them with "
         "parallel.zero = 3 and more ranks";
}

}  // namespace

MemoryNeed least_memory(const RunConfig& config) {
  MemoryNeed need;
  for (const parallel::LayerCost& layer : config.task->layer_costs(config)) {
    need.states += layer.memory;
    need.activations += layer.activations;
  }
  const auto stages = static_cast<double>(config.parallel.pipeline);
  need.states /= stages;
  need.activations /= stages;
  need.samples = static_cast<double>(config.train.global_batch) /
                 static_cast<double>(config.parallel.data) * config.task->sample_bytes();
  return need;
}

void check_memory(const RunConfig& config, int num_ranks, int64_t available_bytes) {
  const MemoryNeed need = least_memory(config);
  const auto available = static_cast<double>(available_bytes);
  TRIREME_CHECK(need.total() * num_ranks <= available, "the run needs at least ",
                gibibytes(need.total()), " per rank",
                num_ranks > 1 ? concat(", ", gibibytes(need.total() * num_ranks), " for ",
                                       num_ranks, " ranks")
                              : "",
                "; this machine has ", gibibytes(available), ": ", advice(config, need));
}

}  // namespace trireme::train::inline internal
