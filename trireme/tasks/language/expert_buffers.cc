#include "trireme/tasks/language/expert_buffers.h"

#include <string>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::tasks::inline internal {

std::vector<checkpoint::Entry> expert_buffers(const model::ModelConfig& config) {
  const model::ExpertConfig& sparse = config.sparse;
  std::vector<checkpoint::Entry> entries;
  const auto add = [&](const std::string& name, c10::ScalarType dtype) {
    entries.push_back({name, at::zeros({sparse.experts}, dtype),
                       mesh::Layout({sparse.experts}, {{"tensor", 1}}), 0});
  };
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (!sparse.is_sparse(layer)) continue;
    const std::string gate = concat("model.layers.", layer, ".mlp.gate.");
    if (sparse.router_bias_rate > 0) add(gate + "e_score_correction_bias", at::kFloat);
    const bool balances_batch =
        sparse.balance_loss > 0 && sparse.balance_over == model::BalanceOver::kBatch;
    if (balances_batch) add(gate + "assignments", at::kLong);
  }
  return entries;
}

}  // namespace trireme::tasks::inline internal
