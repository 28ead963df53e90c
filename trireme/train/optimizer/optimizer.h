// The optimizer of a run: one update rule over this rank's shards, with the states it keeps for
// them under names that a checkpoint can carry. It never communicates.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/parallel/data/shard.h"
#include "trireme/train/config.h"
#include "trireme/train/optimizer/parameter_groups.h"
#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train {

// The rule that `config.name` names.
std::unique_ptr<const UpdateRule> make_update_rule(const OptimizerConfig& config);

// Whether parameters must lie whole on one rank each (see UpdateRule).
bool needs_whole_parameters(const OptimizerConfig& config);

// Not thread-safe. `shards` outlive the optimizer and stay where they are; their gradients may be
// set, replaced and dropped between steps, their weights may not.
class Optimizer {
 public:
  // Throws: ConfigError when optimizer.groups names no parameter
  Optimizer(std::span<const parallel::Shard> shards, const OptimizerConfig& config);

  // One update from the shards' gradients. Shards without one stay as they are.
  void step(double learning_rate);

  // "<state>.<parameter>", such as exp_avg.lm_head.weight; loading fills them in place.
  std::vector<checkpoint::Entry> state() const;
  // Updates made so far.
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }

 private:
  struct ShardState {
    std::vector<StateSpec> specs;
    std::vector<at::Tensor> tensors;  // one a spec
  };

  std::span<const parallel::Shard> shards_;
  std::unique_ptr<const UpdateRule> rule_;
  std::vector<ParameterSettings> settings_;  // one a shard
  std::vector<ShardState> states_;           // one a shard
  int64_t num_steps_ = 0;
};

}  // namespace trireme::train
