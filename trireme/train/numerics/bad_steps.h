// Detects steps whose gradients should not be used: a loss that is not finite, or a norm far above
// its mean. Never communicates: its inputs are the same on all ranks, and so are its decisions.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::train {

struct BadStepOptions {
  int64_t max_skipped = 0;  // in a row; 0: none
  double spike_factor = 0;  // a norm above this multiple of its running mean is bad; 0: never
};

class BadSteps {
 public:
  explicit BadSteps(const BadStepOptions& options) : options_(options) {}

  // Whether the step is good.
  bool accept(double loss, double grad_norm);
  // After a bad step: whether the run may skip it and go on. If so, counts it.
  bool may_skip();
  // Why accept() refused a step, and what to do: "the loss is nan".
  std::string describe(double loss, double grad_norm) const;

  // The state for checkpoints.
  struct State {
    double mean_norm = 0;  // of the good steps
    int64_t num_good = 0;
    int64_t num_skipped = 0;  // in a row
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  bool is_spike(double grad_norm) const;

  BadStepOptions options_;
  State state_;
};

}  // namespace trireme::train
