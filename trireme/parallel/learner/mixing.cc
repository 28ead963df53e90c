#include "trireme/parallel/learner/mixing.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/comm/sized_message.h"

namespace trireme::parallel {
namespace {

// Of messages of the group that mixes, apart from those of exchanges (difference_exchange.h).
constexpr int kMixingTag = 1 << 20;

using Tensors = std::vector<at::Tensor>;

// Brings x to those that receive from this rank, and theirs into from[r]; undefined: none comes.
void send_along(const GraphRound& round, const at::Tensor& x, const Tensors& from,
                comm::Communicator& group, const comm::Options& options) {
  std::vector<std::pair<int, comm::WorkPtr>> arriving;
  std::vector<comm::WorkPtr> leaving;
  for (int peer = 0; peer < group.size(); ++peer) {
    const at::Tensor& theirs = from[static_cast<size_t>(peer)];
    if (!theirs.defined()) continue;
    arriving.emplace_back(peer, comm::recv_sized(group, theirs, peer, options));
  }
  for (const GraphEdge& edge : round) {
    if (edge.from == group.rank()) leaving.push_back(comm::send_sized(group, x, edge.to, options));
  }
  for (const auto& [peer, work] : arriving) comm::await_sized(group, peer, *work);
  for (const comm::WorkPtr& work : leaving) work->wait();
}

// The same as a collective, for tensors of a GPU: as messages they would go through the host's
// memory (comm/device_group.h).
void send_on_device(const GraphRound& round, const at::Tensor& x, const Tensors& from,
                    comm::Communicator& group, const comm::Options& options) {
  const at::Tensor nothing = at::empty({0}, x.options());
  Tensors to(from.size(), nothing), theirs = to;
  for (const GraphEdge& edge : round) {
    if (edge.from == group.rank()) to[static_cast<size_t>(edge.to)] = x;
  }
  for (size_t peer = 0; peer < from.size(); ++peer) {
    if (from[peer].defined()) theirs[peer] = from[peer];
  }
  group.all_to_all(std::move(theirs), std::move(to), {.timeout = options.timeout})->wait();
}

}  // namespace

void mix(const at::Tensor& x, const LearnerGraph& graph, int64_t number, LearnerWeights& weights,
         comm::Communicator& group, const MixingOptions& options) {
  TRIREME_CHECK(group.size() == graph.num_learners, graph.name, " is for ", graph.num_learners,
                " learners, but group ", group.name(), " has ", group.size(),
                "; expected a graph for as many learners as there are");
  TRIREME_CHECK(x.dim() == 1 && x.is_contiguous() &&
                    (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble),
                "the tensor to mix has dtype ", x.scalar_type(), " and ", x.dim(),
                " dimensions; expected one contiguous dimension of fp32 or fp64");
  const int rank = group.rank();
  const comm::Options message{.timeout = options.timeout, .tag = kMixingTag};
  Tensors from(static_cast<size_t>(group.size()));
  std::vector<GraphEdge> incoming;
  for (const GraphEdge& edge : graph.round(number)) {
    if (edge.to != rank) continue;
    from[static_cast<size_t>(edge.from)] = at::empty_like(x);
    incoming.push_back(edge);
  }
  if (x.numel() > 0) {
    const auto send = x.is_cpu() ? send_along : send_on_device;
    send(graph.round(number), x, from, group, message);
  }

  const LearnerWeights before = weights;
  advance(weights, graph, number);
  // All differences first, as they are from the old value.
  for (const GraphEdge& edge : incoming) from[static_cast<size_t>(edge.from)].sub_(x);
  for (const GraphEdge& edge : incoming) {
    const auto source = static_cast<size_t>(edge.from);
    const double share = before[source] / weights[static_cast<size_t>(rank)];
    x.add_(from[source], edge.weight * share);
  }
}

std::vector<at::Tensor> values_to_mix(Correction method, const CorrectedWeights& weights) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> values{weights.now - weights.correction};
  if (method == Correction::kGradientTracking) {
    values.push_back(weights.before - weights.now + weights.correction);
  }
  return values;
}

at::Tensor next_correction(Correction method, const CorrectedWeights& weights,
                           const std::vector<at::Tensor>& mixed) {
  const c10::NoGradGuard no_grad;
  if (method == Correction::kD2) return weights.now - mixed.at(0);
  return mixed.at(1) - (weights.before - weights.now);
}

namespace {

bool is_symmetric(const GraphRound& round) {
  const auto ends = [](const GraphEdge& edge) { return std::pair(edge.to, edge.from); };
  return std::ranges::all_of(round, [&](const GraphEdge& edge) {
    const auto back = std::ranges::lower_bound(round, std::pair(edge.from, edge.to), {}, ends);
    return back != round.end() && *back == GraphEdge{edge.to, edge.from, edge.weight};
  });
}

double smallest_eigenvalue(const LearnerGraph& graph) {
  const GraphRound& round = graph.rounds.front();
  at::Tensor matrix = at::diag(at::tensor(graph.kept(round), at::kDouble));
  for (const GraphEdge& edge : round) {
    matrix.data_ptr<double>()[edge.to * graph.num_learners + edge.from] = edge.weight;
  }
  return at::linalg_eigvalsh(matrix).min().item<double>();
}

}  // namespace

LearnerGraph graph_of_d2(const LearnerGraph& graph) {
  const bool is_steady = graph.period() == 1;
  TRIREME_CHECK(
      is_steady && is_symmetric(graph.rounds.front()), "outer.graph ", graph.name,
      is_steady ? std::string(" has other weights one way than back")
                : concat(" has ", graph.period(), " different rounds"),
      ", and outer.method = \"d2\" needs one round, the same both ways; choose ring, torus "
      "or complete, or outer.method = \"gradient-tracking\"");
  const double smallest = smallest_eigenvalue(graph);
  // A matrix whose smallest eigenvalue is 0 may have one a rounding below.
  constexpr double kRounding = 1e-9;
  if (smallest >= -kRounding) return graph;
  LearnerGraph damped = graph;
  for (GraphEdge& edge : damped.rounds.front()) edge.weight /= 1 - smallest;
  damped.name += format(", weights times %.3g", 1 / (1 - smallest));
  return damped;
}

}  // namespace trireme::parallel
