// Base-(k+1) graphs: every learner has at most k peers in a round, and all learners agree exactly
// after finitely many rounds, for every number of learners.
// Source: Takezawa et al. 2023, arXiv:2305.11420 (Beyond Exponential Graph), algorithms 1 to 3
#pragma once

#include "trireme/parallel/learner/learner_graph.h"

namespace trireme::parallel {

// The Simple Base-(k+1) graph. With n = a_1 (k+1)^p_1 + ... + a_L (k+1)^p_L and p_1 > ... > p_L,
// the learners are parts of these sizes. Each part averages; then parts exchange once, in order of
// size, so that each gets the mean of all; then each averages again. At most 2 log_{k+1}(n) + 2
// rounds. Unlike the paper, learners that already agree do not exchange; it would change nothing.
// k: from 1; peers beyond n - 1 have no use
// Throws: ConfigError for another number of learners (learner_graph.h) or a k below 1
LearnerGraph make_simple_base_graph(int num_learners, int k);

// The Base-(k+1) graph: with n = p q, where q has no prime factor up to k + 1, p Simple graphs of
// q learners each, then averages of p learners, if that takes fewer rounds than the Simple graph.
// Throws: as make_simple_base_graph()
LearnerGraph make_base_graph(int num_learners, int k);

}  // namespace trireme::parallel
