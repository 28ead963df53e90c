#include "trireme/parallel/learner/mixing.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel {

void mix(const at::Tensor& x, const LearnerGraph& graph, int64_t number, LearnerWeights& weights,
         comm::Communicator& group, const MixingOptions& options) {
  TRIREME_CHECK(group.size() == graph.num_learners, graph.name, " is for ", graph.num_learners,
                " learners, but group ", group.name(), " has ", group.size(),
                "; expected a graph for as many learners as there are");
  TRIREME_CHECK(x.dim() == 1 && x.is_contiguous() &&
                    (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble),
                "the tensor to mix has dtype ", x.scalar_type(), " and ", x.dim(),
                " dimensions; expected one contiguous dimension of fp32 or fp64");
  // In the background, so that no rank's order of messages can keep another rank waiting.
  const comm::Options behind{.timeout = options.timeout, .tag = options.tag, .background = true};
  const int rank = group.rank();
  std::vector<comm::WorkPtr> work;
  std::vector<std::pair<GraphEdge, at::Tensor>> received;
  for (const GraphEdge& edge : graph.round(number)) {
    if (edge.to != rank) continue;
    received.emplace_back(edge, at::empty_like(x));
    work.push_back(group.recv(received.back().second, edge.from, behind));
  }
  for (const GraphEdge& edge : graph.round(number)) {
    if (edge.from == rank) work.push_back(group.send(x, edge.to, behind));
  }
  for (const comm::WorkPtr& message : work) message->wait();

  const LearnerWeights before = weights;
  advance(weights, graph, number);
  // All differences first, as they are from the old value.
  for (const auto& [edge, value] : received) value.sub_(x);
  for (const auto& [edge, difference] : received) {
    const double share =
        before[static_cast<size_t>(edge.from)] / weights[static_cast<size_t>(rank)];
    x.add_(difference, edge.weight * share);
  }
}

}  // namespace trireme::parallel
