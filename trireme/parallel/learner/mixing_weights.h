// The weights of push-sum: how much of the sum over learners each one holds. They follow from the
// graph alone, so every rank computes all of them and none is sent.
// Source: Kempe et al. 2003, "Gossip-based computation of aggregate information", FOCS; Assran et
//         al. 2019, arXiv:1811.10792 (stochastic gradient push)
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/parallel/learner/learner_graph.h"

namespace trireme::parallel {

// By learner. Their sum stays num_learners, to rounding. Part of a run's state.
using LearnerWeights = std::vector<double>;

// 1 for each learner, as a run starts.
LearnerWeights even_weights(const LearnerGraph& graph);

// The weights after round `number`. They stay 1 in a doubly stochastic graph.
void advance(LearnerWeights& weights, const LearnerGraph& graph, int64_t number);

}  // namespace trireme::parallel
