// What a communication graph does: whether all learners come to agree, how fast, and at what cost.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/parallel/learner/learner_graph.h"

namespace trireme::parallel {

struct GraphReport {
  // Whether every learner's value reaches every other one. As each learner keeps a part of its own
  // value, they then agree in the end.
  bool is_connected = false;
  // errors[t] is errors_by_round()'s, for the rounds of one period.
  std::vector<double> errors;
  // Rounds from the start of a period until all learners have the mean, to rounding; -1: never
  // within a period.
  int exact_after = -1;
  // The factor by which a period shrinks the disagreement in the long run: the second largest
  // absolute eigenvalue of the period's mixing matrix, estimated. 0 when exact; 1 when not
  // connected.
  double contraction = 1;
  // Tensors that a learner sends in a round.
  int64_t most_sends = 0;
  double mean_sends = 0;
};

GraphReport report_on(const LearnerGraph& graph);

// The largest difference from the mean, 1/n, that any learner has after t = 0, 1, ... num_rounds
// rounds, when one learner starts with 1 and the others with 0, whichever learner that is. With
// push-sum weights where the graph needs them. num_learners^2 numbers per round.
std::vector<double> errors_by_round(const LearnerGraph& graph, int num_rounds);
// The rounding error of the last of those, at most: an error up to this counts as none. A round
// takes at most d + 2 roundings of numbers up to 1, for d received values.
double rounding_of(const LearnerGraph& graph, int num_rounds);

// Throws: ConfigError when some learner's value never reaches another one
void check_connected(const LearnerGraph& graph);

// Bytes that a learner sends in a round of mixing.h, for a tensor of `tensor_bytes`.
int64_t sent_bytes(const GraphRound& round, int learner, int64_t tensor_bytes);
int64_t received_bytes(const GraphRound& round, int learner, int64_t tensor_bytes);

}  // namespace trireme::parallel
