// Mixes the tensors of learners by the rounds of a communication graph.
#pragma once

#include <chrono>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/learner/learner_graph.h"
#include "trireme/parallel/learner/mixing_weights.h"

namespace trireme::parallel {

struct MixingOptions {
  // How long to wait for a peer. Zero means the group's timeout.
  std::chrono::milliseconds timeout{0};
  // Of all messages. Two calls that may overlap need different tags.
  int tag = 0;
};

// Round `number` of the graph, with x_i of every learner i = group.rank():
//   x_i + sum_j c_ij (x_j - x_i), for the learners j that i receives from, in the order of j
// with c_ij = w_ij in a doubly stochastic graph. The mean over learners is kept, to rounding. In a
// column stochastic graph c_ij = w_ij p_j / p_i' with push-sum weights p before and p' after the
// round; then sum_i p_i x_i is kept. A learner's step that adds d to the sum adds d / p_i to x_i.
// Only whole tensors x_j are sent, and differences are taken on arrival: tensors that are equal on
// all learners stay equal bit for bit, and unchanged, whatever the weights.
// If it throws, neither x nor the weights have changed.
// Shapes:     x [n], contiguous, fp32 or fp64, in place
// Comm:       n elements sent to each learner that receives from this one, n received from each
//             that it receives from (sent_bytes() and received_bytes() of graph_check.h)
// Memory:     n elements for each learner that it receives from
// Collective: every learner, with the same graph, number and weights. No order of messages can
//             block.
// Throws:     ConfigError when the group is not as large as the graph, or x is not as above
void mix(const at::Tensor& x, const LearnerGraph& graph, int64_t number, LearnerWeights& weights,
         comm::Communicator& group, const MixingOptions& options = {});

}  // namespace trireme::parallel
