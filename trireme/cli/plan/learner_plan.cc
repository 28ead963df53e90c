#include "trireme/cli/plan/learner_plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <c10/util/accumulate.h>

#include "trireme/base/error.h"
#include "trireme/parallel/learner/named_graph.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::cli {
namespace {

std::vector<plan::ExchangedParameter> exchanged_parameters(const train::RunConfig& config) {
  const train::ParallelConfig& parallel = config.parallel;
  const std::vector<model::ParameterPlan> parameters = config.task->model().parameters(
      {.tensor = static_cast<int>(parallel.tensor), .expert = static_cast<int>(parallel.expert)});
  const std::set<std::string> frozen = train::frozen_parameters(config, parameters);
  std::vector<plan::ExchangedParameter> exchanged;
  for (const model::ParameterPlan& parameter : parameters) {
    const mesh::Layout& layout = parameter.layout;
    const auto is_over = [&](const char* name) {
      return std::ranges::any_of(layout.axes(),
                                 [&](const auto& axis) { return axis.name == name; });
    };
    const bool is_expert = is_over("expert");
    exchanged.push_back(
        {.elements = c10::multiply_integers(layout.whole_shape()),
         .is_trained = !frozen.contains(parameter.name),
         .is_cut = is_expert ? is_over("tensor") : layout.shape() != layout.whole_shape(),
         .is_expert = is_expert});
  }
  return exchanged;
}

}  // namespace

void check_known_method(const train::RunConfig& config) {
  using enum train::OuterMethod;
  const train::OuterMethod method = config.outer.method;
  const bool is_known =
      method == kAverage || method == kDiloco || method == kGossip || method == kPushSum;
  TRIREME_CHECK(config.parallel.learners == 1 || is_known, "outer.method is \"",
                name_of(train::kOuterMethods, method),
                "\", which the cost model does not know; it knows average, diloco, gossip and "
                "push-sum");
  TRIREME_CHECK(!config.outer.meets(),
                "outer.meeting is set: the cost model does not know learners that are runs of "
                "their own; leave it out to plan learners that are ranks of one run");
}

double outer_bytes_per_weight(const train::RunConfig& config, double wide_bytes) {
  if (config.parallel.learners == 1) return 0;
  const train::OuterConfig& outer = config.outer;
  const bool loses = outer.wire != parallel::WireCode::kFloat32 || outer.kept < 1;
  const bool has_momentum = outer.method == train::OuterMethod::kDiloco && outer.momentum != 0;
  const double residual = loses ? sizeof(float) : 0;
  const double travelling =
      outer.delay > 0 ? (wide_bytes + residual) / static_cast<double>(outer.fragments) : 0;
  return wide_bytes + (has_momentum ? wide_bytes : 0) + residual + travelling;
}

std::optional<plan::LearnerWork> learner_work(const train::RunConfig& config,
                                              const plan::Cluster& cluster) {
  const int64_t learners = config.parallel.learners;
  if (learners == 1) return std::nullopt;
  const train::OuterConfig& outer = config.outer;
  check_known_method(config);
  plan::LearnerWork work{.learners = learners,
                         .parameters = exchanged_parameters(config),
                         .every = outer.every,
                         .fragments = outer.fragments,
                         .delay = outer.delay,
                         .form = {.code = outer.wire, .kept = outer.kept}};
  if (outer.states == train::OuterStates::kAverage) {
    const plan::NumberSizes sizes = config.task->model().workload(config)->sizes;
    work.num_states = std::lround(sizes.states / sizes.trained_share / sizes.wide);
  }
  if (!outer.has_common()) {
    work.graph = parallel::make_named_graph(outer.graph, nodes_of_learners(cluster, learners));
  }
  return work;
}

RunPrediction predict_run(const train::RunConfig& config, const plan::Workload& work,
                          const plan::Cluster& cluster, const plan::StageLayout& layout) {
  const std::optional<plan::LearnerWork> outer = learner_work(config, cluster);
  if (!outer) return {.step = predict_step(work, cluster, layout)};
  const plan::StepPrediction inner =
      predict_step(work, cluster_of_learner(cluster, outer->learners), layout);
  RunPrediction run{.learners = with_learners(work, *outer, cluster, inner)};
  run.step = run.learners->all;
  return run;
}

}  // namespace trireme::cli
