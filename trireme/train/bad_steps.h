// Steps whose gradients are better not used: a loss that is no number, or a norm far above what it
// was. Communicates nothing: what it is told is the same on all ranks, and so is what it says.
#pragma once

#include <cstdint>

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
  // After a bad one: whether it may be left out rather than end the run.
  bool may_skip();
  int64_t num_skipped() const { return num_skipped_; }  // in a row

  // What a checkpoint keeps.
  double mean_norm() const { return mean_norm_; }
  int64_t num_good() const { return num_good_; }
  void restore(double mean_norm, int64_t num_good) {
    mean_norm_ = mean_norm;
    num_good_ = num_good;
  }

 private:
  BadStepOptions options_;
  double mean_norm_ = 0;  // of the good steps
  int64_t num_good_ = 0;
  int64_t num_skipped_ = 0;
};

}  // namespace trireme::train
