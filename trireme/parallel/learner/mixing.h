// Mixes the tensors of learners by the rounds of a communication graph, and corrects what learners
// mix whose data differ.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/learner/learner_graph.h"
#include "trireme/parallel/learner/mixing_weights.h"

namespace trireme::parallel {

struct MixingOptions {
  // How long to wait for a peer. Zero means the group's timeout.
  std::chrono::milliseconds timeout{0};
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
// Collective: every learner, with the same graph, number and weights
// Throws:     ConfigError when the group is not as large as the graph, or x is not as above
void mix(const at::Tensor& x, const LearnerGraph& graph, int64_t number, LearnerWeights& weights,
         comm::Communicator& group, const MixingOptions& options = {});

// Gossip of learners whose data differ. Under plain gossip each learner's own data pull it away
// from the others in every round, and learners settle where the pull and the mixing balance. Here a
// learner keeps a correction that comes to cancel its pull, so they settle where the mean of all
// pulls is zero. These functions go around mix() and never communicate.
//
// In a round, learner i has the weights w_i, and x_i after its last mixing; d_i = x_i - w_i is what
// it has changed since. With mixing weights c_ij of rows and columns that sum to 1:
//
//   gradient tracking            y_i = d_i + e_i              the tracker
//                                x_i <- sum_j c_ij (w_j - e_j)       (= x_j - y_j)
//                                e_i <- sum_j c_ij y_j - d_i
//   D^2                          x_i <- sum_j c_ij (w_j - e_j)
//                                e_i <- w_i - x_i (the new one)
//
// The corrections e begin as 0, and in every round sum_i e_i = 0: so the trackers sum to the
// differences, and the mean of the weights moves as that of all learners' steps. Where learners
// settle, x is the same on all and sum_i d_i = 0. With one step of plain gradient descent between
// two exchanges that is the optimum of the learners' mean loss.
// Source: Nedic, Olshevsky and Shi 2017, arXiv:1607.03218 (DIGing), in the form that mixes after
//         the step; Tang et al. 2018, arXiv:1803.07068 (D^2), whose 2 x - x_before - g + g_before
//         is w - e
enum class Correction { kGradientTracking, kD2 };

// A learner's weights in a round. All are of one shape and dtype.
struct CorrectedWeights {
  at::Tensor now;         // w
  at::Tensor before;      // x; D^2 does not use it
  at::Tensor correction;  // e
};

// What is mixed: w - e, and the tracker for gradient tracking. Equal learners mix their weights'
// bits.
std::vector<at::Tensor> values_to_mix(Correction method, const CorrectedWeights& weights);
// The next correction, given what mixing has made of these values.
at::Tensor next_correction(Correction method, const CorrectedWeights& weights,
                           const std::vector<at::Tensor>& mixed);

// The graph with which D^2 is stable: its eigenvalues must be above -1/3. What learners receive is
// scaled by 1 / (1 - smallest eigenvalue) where one is negative, so that none is.
// Throws: ConfigError unless the graph has one round, in which what i has from j weighs as much as
//         what j has from i
LearnerGraph graph_of_d2(const LearnerGraph& graph);

}  // namespace trireme::parallel
