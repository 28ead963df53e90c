// A plan as annotations, with which spmd::annotate() runs it.
#pragma once

#include "trireme/plan/shard/shard_plan.h"
#include "trireme/spmd/annotate.h"

namespace trireme::plan {

// The splits that patterns of `given` say, by parameter (value), for ShardOptions::fixed.
// Throws: ConfigError for splits that a plan does not have: uneven ones, and sums
std::map<int, Split> fixed_splits(const spmd::Graph& graph, const ShardAxes& axes,
                                  const spmd::Annotations& given);

// `given`, which the plan keeps, with the plan's splits of the other parameters and inputs, and of
// the arguments of operators that come otherwise than the plan wants them. Inputs are the named
// values of the graph.
// Throws: ConfigError for a graph with an operator that has no rule
spmd::Annotations notes_of(const spmd::Graph& graph, const ShardPlan& plan, const ShardAxes& axes,
                           const spmd::Annotations& given);

}  // namespace trireme::plan
