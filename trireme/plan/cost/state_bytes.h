// Memory of weights, gradients and optimizer states, as ZeRO divides them.
#pragma once

#include <cstdint>

#include "trireme/plan/cost/workload.h"

namespace trireme::plan {

// How many sums of the whole gradient a rank holds until a step's last microbatch: none with a
// single microbatch; if they are summed in a tree, one for each of its levels.
int64_t held_gradients(int64_t num_microbatches, bool in_a_tree);

// Bytes of weights, gradients and optimizer states per parameter in a rank's part of the model,
// which ZeRO stage `zero` divides over `ranks`.
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 3
double state_bytes_per_parameter(const NumberSizes& sizes, int64_t zero, int64_t ranks);

}  // namespace trireme::plan
