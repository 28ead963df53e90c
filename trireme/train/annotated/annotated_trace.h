// Traces a step of an annotated module as its stage runs it, without ranks and without memory.
#pragma once

#include <cstdint>

#include "trireme/dataset/source.h"
#include "trireme/spmd/graph/graph.h"
#include "trireme/train/annotated/annotated_problem.h"

namespace trireme::train {

struct RunConfig;

// All links on one microbatch of `samples`, whose tensors have the sizes of the source's first.
// The inputs have their names.
// Throws: ConfigError as spmd::trace_step()
spmd::Graph trace_annotated(const AnnotatedProblem& problem, const RunConfig& config,
                            const dataset::Source& source, int64_t samples);

}  // namespace trireme::train
