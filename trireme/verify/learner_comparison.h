// The comparisons of a run's learners as one.
#pragma once

#include <vector>

#include "trireme/verify/comparison.h"

namespace trireme::verify {

// Probes say which learner they are of. They keep the order of a step: all learners make their
// activations before any makes a gradient, so what comes first is the nearest to the cause, also
// where learners sum what they have.
// learners: in their order
Comparison joined(std::vector<Comparison> learners);

}  // namespace trireme::verify
