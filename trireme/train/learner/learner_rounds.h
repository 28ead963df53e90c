// The rounds of a learner that is a run of its own, with others that come and go: carries its
// messages by way of the service at which they meet, and takes the common weights of others when it
// is behind.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/comm/rounds/round_client.h"
#include "trireme/parallel/learner/difference_exchange.h"
#include "trireme/train/config/config.h"
#include "trireme/train/learner/learner_state.h"

namespace trireme::train {

// Not thread safe. Functions that are not const, but add(), are collective over the learner's
// ranks. They throw ConfigError when the service refuses this learner, and CommError when it is
// away, or no round ends, for longer than parallel.timeout_seconds.
class LearnerRounds final : public parallel::ShareCarrier {
 public:
  // ranks: of this learner. Both outlive it.
  LearnerRounds(const RunConfig& config, comm::Communicator& ranks);

  // Comes to the others, with the common weights that `state` has since the round of `step` (0: of
  // the beginning). Returns the step of newer ones that it has taken instead, if it has. Waits no
  // longer once `is_stopped` says so on a rank that waits: then it may not be one of them.
  // Comm: what state.common() has, if it takes newer ones
  std::optional<int64_t> join(LearnerState& state, int64_t step, int64_t last_step,
                              const std::function<bool()>& is_stopped = {});

  // A run that has come to its last step before: gives its state to those that are behind, if the
  // service is there and has none.
  void come_back(const LearnerState& state, int64_t last_step);

  // Brings the message that has been added to those that take part in the round of `step`, and
  // theirs here. If this learner is not one of them, or too late for theirs, the state takes newer
  // common weights, whose step is returned. A decoupled learner then keeps a message that has not
  // counted.
  // Comm: the message to the service, and those of the others from it
  std::optional<int64_t> exchange(LearnerState& state, int64_t step);
  // Whether the last message counted in its round.
  bool has_counted() const { return has_counted_; }
  // The state has come to what the round makes of the common weights. Gives it to learners that are
  // behind, if it is this one's turn.
  void commit(const LearnerState& state, int64_t step);
  // The learner ends, and is not waited for.
  void leave();

  // The learners of the last round, in order.
  const std::vector<int>& places() const { return places_; }

  size_t add(const at::Tensor& mine) override;
  std::vector<at::Tensor> take(size_t part) const override;

 private:
  void enroll(const LearnerState& state, int64_t step, int64_t last_step,
              std::chrono::milliseconds timeout);
  std::optional<int64_t> settle(LearnerState& state, bool keeps_message);
  bool bring(int64_t step);
  bool do_all(bool is_true);
  bool is_stopped() const { return is_stopped_ && is_stopped_(); }
  bool waits(const std::function<void()>& wait) const;

  const RunConfig& config_;
  comm::Communicator& ranks_;
  std::unique_ptr<comm::RoundClient> client_;
  std::vector<at::Tensor> parts_;            // of this rank's message
  std::vector<comm::wire::Bytes> messages_;  // of the round, in the order of places_
  std::vector<int> places_;
  std::function<bool()> is_stopped_{};  // while it joins
  int donor_ = -1;
  bool has_counted_ = false;
  int64_t last_step_ = 0;
};

}  // namespace trireme::train
