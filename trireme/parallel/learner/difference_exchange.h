// Brings the sum of the learners' differences to every rank. Ranks of equal place in their
// learners hold the same part of the model; those of one learner that hold the same values each
// send a share of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::parallel {

// Not thread safe. The groups must outlive it. Every function but the queries is collective: every
// rank of all learners that exchange calls it, in the same order.
class DifferenceExchange {
 public:
  // learners: the ranks of equal place, in the order of learners
  // replicas: the ranks of this learner that hold the same values
  // tag:      of its messages, and the next one; exchanges of a group that overlap have other ones
  DifferenceExchange(comm::Communicator& learners, comm::Communicator& replicas, int tag = 0);

  // Begins to sum. It goes on in the background.
  // difference: [n] fp32 or fp64, contiguous; taken, nobody else may change it
  // notes:      a few numbers for all learners, as many on each
  // Comm:       for p learners, n elements of this rank's share (n / replicas) to p - 1 ranks with
  //             two learners, otherwise an all-reduce of it; 8 bytes per note to p - 1 ranks
  void start(at::Tensor difference, std::vector<double> notes);
  bool is_under_way() const { return difference_.defined(); }

  struct Result {
    at::Tensor sum{};                          // [n], in rank order
    std::vector<std::vector<double>> notes{};  // of each learner
  };
  // Waits for it.
  // Comm:   the shares all-gathered among the replicas
  // Throws: CommError
  Result finish();

  // What this rank has sent to other learners in the last exchange, in bytes.
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  comm::Communicator& learners_;
  comm::Communicator& replicas_;
  int tag_;
  at::Tensor difference_;           // undefined: none is under way
  at::Tensor share_;                // of this rank, in difference_
  std::vector<at::Tensor> shares_;  // of the learners; empty: an all-reduce in share_
  std::vector<at::Tensor> notes_;   // of the learners
  std::vector<comm::WorkPtr> works_;
  int64_t sent_bytes_ = 0;
};

}  // namespace trireme::parallel
