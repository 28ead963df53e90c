#include "trireme/parallel/learner/mixing_weights.h"

#include "trireme/base/error.h"

namespace trireme::parallel {

LearnerWeights even_weights(const LearnerGraph& graph) {
  return LearnerWeights(static_cast<size_t>(graph.num_learners), 1.0);
}

void advance(LearnerWeights& weights, const LearnerGraph& graph, int64_t number) {
  TRIREME_ASSERT(weights.size() == static_cast<size_t>(graph.num_learners), weights.size(),
                 " weights for ", graph.num_learners, " learners");
  if (graph.kind == MixingKind::kDoublyStochastic) return;
  const GraphRound& round = graph.round(number);
  LearnerWeights next = graph.kept(round);
  for (size_t i = 0; i < next.size(); ++i) next[i] *= weights[i];
  for (const GraphEdge& edge : round) {
    next[static_cast<size_t>(edge.to)] += edge.weight * weights[static_cast<size_t>(edge.from)];
  }
  weights = std::move(next);
}

}  // namespace trireme::parallel
