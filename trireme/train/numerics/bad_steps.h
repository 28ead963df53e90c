// Steps whose gradients are better not used: a loss that is no number, or a norm far above what it
// was. Communicates nothing: what it is told is the same on all ranks, and so is what it says.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::train {

struct BadStepOptions {
  int64_t max_skipped = 0;  // in a row; 0: none may be skipped
  double spike_factor = 0;  // a norm above so many times its running mean is bad; 0: never
};

class BadSteps {
 public:
  explicit BadSteps(const BadStepOptions& options) : options_(options) {}

  // Whether the step is a good one.
  bool accept(double loss, double grad_norm);
  // After a bad one: whether it may be left out rather than end the run. Counts it if so.
  bool may_skip();
  // What is wrong with a step that accept() refused, and what to do: "the loss is nan".
  std::string describe(double loss, double grad_norm) const;

  // What a checkpoint keeps.
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
