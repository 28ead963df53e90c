#include "trireme/tasks/recommend/network.h"

#include "trireme/base/error.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/tasks/recommend/dlrm.h"
#include "trireme/tasks/recommend/layers/mlp.h"
#include "trireme/tasks/recommend/two_tower.h"
#include "trireme/tasks/recommend/wide_deep.h"

namespace trireme::tasks::inline internal {

std::vector<parallel::Unit> Network::units() const {
  std::vector<parallel::Unit> units;
  for (const auto& child : named_children()) {
    units.push_back({.name = child.key(), .parameters = child.value()->parameters()});
  }
  return units;
}

at::Tensor Network::run(size_t child, const at::Tensor& x,
                        const parallel::UnitForward& forward) const {
  // Recomputation calls it after this returns.
  return run_unit(child, x, [this, forward](const at::Tensor& input) {
    return model::recompute_if(
        recomputes, [forward](const std::vector<at::Tensor>& inputs) { return forward(inputs[0]); },
        {input});
  });
}

std::shared_ptr<Network> make_network(const RecommendProblem& problem, uint64_t seed) {
  std::shared_ptr<Network> network;
  switch (problem.config.model.family) {
    case RecommendFamily::kDlrm:
    case RecommendFamily::kDlrmDcnV2: network = std::make_shared<Dlrm>(problem); break;
    case RecommendFamily::kWideDeep: network = std::make_shared<WideDeep>(problem); break;
    case RecommendFamily::kTwoTower: network = std::make_shared<TwoTower>(problem); break;
  }
  TRIREME_ASSERT(network, "a recommendation model without a name");
  draw_values(*network, seed);
  return network;
}

}  // namespace trireme::tasks::inline internal
