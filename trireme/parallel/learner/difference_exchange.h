// Brings the sum of the learners' differences to every rank. Ranks of equal place in their
// learners hold the same part of the model; those of one learner that hold the same values each
// send a share of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/background_work.h"
#include "trireme/comm/communicator.h"
#include "trireme/parallel/learner/wire_form.h"

namespace trireme::parallel {

// How learners that are not ranks of one job bring each other what they exchange: takes the parts
// of this rank's message, and gives those of the ranks of equal place in all learners that take
// part, once they have come. Not thread safe.
class ShareCarrier {
 public:
  virtual ~ShareCarrier() = default;

  // Adds a part to the message. Returns its number: from 0 in each exchange, the same on all.
  // mine: on the CPU, contiguous
  virtual size_t add(const at::Tensor& mine) = 0;
  // That part of each learner's message, in the order of learners.
  // Shapes: as `mine`
  virtual std::vector<at::Tensor> take(size_t part) const = 0;
};

// A second group of the learners' ranks, on which exchanges send sums from threads of their own
// while their caller uses the first. Several exchanges may share one: their tags differ.
class SumsGroup {
 public:
  // learners: must outlive it
  explicit SumsGroup(comm::Communicator& learners) : learners_(learners) {}

  // Makes the group at first. For the thread of the caller.
  // Collective: every rank of `learners`, in the same order
  void make();
  // One call on the group. Thread safe once it is made.
  comm::WorkPtr send(const at::Tensor& data, int peer, const comm::Options& options);
  comm::WorkPtr recv(const at::Tensor& data, int peer, const comm::Options& options);
  void abort(const std::string& reason);

 private:
  comm::Communicator& learners_;
  std::mutex mutex_;
  std::unique_ptr<comm::Communicator> group_;
};

// Not thread safe. The groups must outlive it. Every function but the queries is collective: every
// rank of all learners that exchange calls it, in the same order.
class DifferenceExchange {
 public:
  // learners: the ranks of equal place, in the order of learners
  // replicas: the ranks of this learner that hold the same values
  // tag:      of its messages; exchanges of a group that overlap have other ones
  // form:     in which differences are sent
  // carrier:  brings the messages in place of `learners`; null: none does. finish() comes once it
  //           has brought them
  // sums:     of exchanges of `learners`; null: it has one of its own
  DifferenceExchange(comm::Communicator& learners, comm::Communicator& replicas, int tag = 0,
                     const WireForm& form = {}, ShareCarrier* carrier = nullptr,
                     std::shared_ptr<SumsGroup> sums = nullptr);

  // Begins to sum. It goes on in the background.
  // difference: [n] fp32 or fp64, contiguous; taken, nobody else may change it
  // notes:      a few numbers for all learners, as many on each
  // residual:   [n] fp32, what earlier messages have lost, which is added; undefined without it
  // Comm:       for p learners this rank's share (n / replicas elements) to p - 1 ranks, in the
  //             wire's form. Of more than two learners in whole fp32 or fp64, each sums an even
  //             part of the share: 2 (p - 1) / p of it. 8 bytes per note to p - 1 ranks. Over a
  //             network, beside the bytes: one round trip; half a one more where parts are summed.
  //             On a GPU as collectives, which take one or two more
  // Throws:     ConfigError when what is to be encoded is not finite
  void start(at::Tensor difference, std::vector<double> notes, at::Tensor residual = {});
  bool is_under_way() const { return difference_.defined(); }

  struct Result {
    at::Tensor sum{};                          // [n], in rank order
    std::vector<std::vector<double>> notes{};  // of each learner
    at::Tensor residual{};                     // [n], what this learner's message has lost
  };
  // Waits for it.
  // Comm:   the shares of the sum and of the residual all-gathered among the replicas
  // Throws: CommError
  Result finish();

  // Forgets an exchange that a carrier has not brought about.
  void abandon();

  // What this rank has sent to other learners in the last exchange, in bytes.
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  void hand_over(const at::Tensor& share, const at::Tensor& notes);
  bool is_coded() const { return form_.code != WireCode::kFloat32 || form_.kept < 1; }
  std::vector<at::Tensor> swap(const at::Tensor& mine, int tag);
  void start_whole();
  void start_sum_of_parts();
  void add_shares();

  comm::Communicator& learners_;
  comm::Communicator& replicas_;
  int tag_;
  WireForm form_;
  ShareCarrier* carrier_;
  size_t part_ = 0;        // of the carrier's message; the next one has the notes
  at::Tensor difference_;  // undefined: none is under way
  at::Tensor share_;       // of this rank, in difference_
  at::Tensor residual_;
  std::vector<at::Tensor> shares_;  // of the learners, as sent; empty: none are added up here
  std::vector<at::Tensor> summed_;  // the parts of the sum, where each learner sums one
  std::vector<at::Tensor> notes_;   // of the learners
  std::vector<std::pair<int, comm::WorkPtr>> arriving_;  // from other learners
  std::vector<comm::WorkPtr> works_;                     // all else
  int64_t sent_bytes_ = 0;
  std::shared_ptr<SumsGroup> sums_;  // on which the summed parts come to all
  comm::WorkQueue queue_;            // last: its thread ends first
};

}  // namespace trireme::parallel
