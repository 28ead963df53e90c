#include "trireme/train/parallel/memory_check.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <string>

#include "trireme/base/error.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::train::inline internal {
namespace {

std::string gibibytes(double bytes) {
  std::ostringstream text;
  text << std::setprecision(bytes < 1000.0 * (1 << 30) ? 3 : 15)
       << std::max(bytes / (1 << 30), 0.001) << " GiB";
  return text.str();
}

std::string advice(const RunConfig& config, const MemoryNeed& need) {
  if (need.tokens >= std::max(need.states, need.activations)) {
    return concat("lower train.global_batch (", config.train.global_batch,
                  ") or model.sequence_length (", config.model.sequence_length,
                  "), whose tokens are most of it");
  }
  if (need.activations >= need.states) {
    return concat("lower train.micro_batch (", config.train.micro_batch,
                  ") or model.sequence_length (", config.model.sequence_length,
                  "), whose activations are most of it, or set train.recompute = \"full\"");
  }
  return concat("lower model.layers (", config.model.layers, "), model.width (", config.model.width,
                "), model.ffn_width (", config.model.ffn_width, ") or model.vocab_size (",
                config.model.vocab_size,
                "), whose weights and optimizer states are most of it, or shard them with "
                "parallel.zero = 3 and more ranks");
}

}  // namespace

MemoryNeed least_memory(const RunConfig& config) {
  MemoryNeed need;
  for (const parallel::LayerCost& layer : layer_costs(config)) {
    need.states += layer.memory;
    need.activations += layer.activations;
  }
  const auto stages = static_cast<double>(config.parallel.pipeline);
  need.states /= stages;
  need.activations /= stages;
  // int64 tokens and targets, and the document of each token.
  const double bytes_per_token = config.data.separate_documents ? 24 : 16;
  need.tokens = static_cast<double>(config.train.global_batch) /
                static_cast<double>(config.parallel.data) *
                static_cast<double>(config.model.sequence_length) * bytes_per_token;
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
