// AdamW through libtorch's fused kernel, with its state under the parameters' names so that a
// checkpoint can carry it.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/train/config.h"
#include "trireme/train/gradient_norm.h"

namespace trireme::train {

// Source: Loshchilov & Hutter 2019, arXiv:1711.05101
class AdamW {
 public:
  // Matrices (two dimensions and more) decay; norms and biases do not.
  AdamW(NamedTensors parameters, const OptimizerConfig& config);

  // One update from the parameters' gradients. Parameters without one stay as they are.
  void step(double learning_rate);

  // exp_avg.<name> and exp_avg_sq.<name>, shaped like the parameter; loading fills them in place.
  NamedTensors state() const;
  // Updates made so far.
  int64_t num_steps() const;
  void set_num_steps(int64_t num_steps);

 private:
  struct Group {
    double weight_decay = 0;
    std::vector<size_t> parameters;
  };

  NamedTensors parameters_;
  OptimizerConfig config_;
  std::vector<Group> groups_;
  std::vector<at::Tensor> exp_avg_;     // first moment, one a parameter
  std::vector<at::Tensor> exp_avg_sq_;  // second moment
  at::Tensor num_steps_;                // [] fp32, as the kernel wants it; exact below 2^24
};

}  // namespace trireme::train
