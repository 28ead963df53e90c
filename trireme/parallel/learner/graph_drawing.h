// Drawings of communication graphs.
#pragma once

#include <string>

#include "trireme/parallel/learner/learner_graph.h"

namespace trireme::parallel {

inline constexpr int kMostDrawnLearners = 64;
inline constexpr int kMostDrawnRounds = 48;

// A complete SVG file: the graph's name and what it does, then a circle of learners for each round.
// An edge without an arrow goes both ways with one weight. A dashed learner takes no part in the
// round. Further rounds than kMostDrawnRounds are counted only.
// Throws: ConfigError for more than kMostDrawnLearners
std::string draw_svg(const LearnerGraph& graph);

}  // namespace trireme::parallel
