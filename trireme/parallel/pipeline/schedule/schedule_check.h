// Checks that a schedule can be run: every part once and in order, matching transfers, no deadlock.
// Computes the activations it holds.
#pragma once

#include <vector>

#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

// The most activations a rank holds at one time. 1 is one microbatch on one stage.
struct PeakActivations {
  int until_backward = 0;  // from a forward to its backward, or its input part
  int until_weight = 0;    // from a forward to its backward, or its weight part
  bool operator==(const PeakActivations&) const = default;
};
// One entry per rank. The schedule may be invalid.
std::vector<PeakActivations> peak_activations(const Schedule& schedule);

// Throws: ConfigError naming rank, action and reason, when
//         - an action is on a rank that does not hold its stage, or its stage or microbatch is out
//           of range
//         - a forward, or a part of a backward, is missing or appears twice
//         - the backwards of a stage, or its weight parts, are not in ascending order
//         - a send has no recv, a recv no send, or an edge between ranks has neither
//         - an action comes before what it needs, or ranks wait for each other in a circle (with
//           each send waiting for its recv)
void check_schedule(const Schedule& schedule);

}  // namespace trireme::parallel
