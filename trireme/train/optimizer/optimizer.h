// The optimizer of a run: one update rule for this rank's shards, and its states, named for
// checkpoints. Never communicates.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/parallel/data/shard.h"
#include "trireme/train/offload/state_store.h"
#include "trireme/train/optimizer/optimizer_config.h"
#include "trireme/train/optimizer/parameter_groups.h"
#include "trireme/train/optimizer/state_format.h"
#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train {

// The rule called `config.name`.
// Throws: ConfigError when there is none
std::unique_ptr<const UpdateRule> make_update_rule(const OptimizerConfig& config);

// Whether each parameter must lie whole on one rank (see UpdateRule).
bool needs_whole_parameters(const OptimizerConfig& config);
// For messages, the names of the optimizers that need whole parameters, or of all others: "adamw,
// sgd or lion".
std::string optimizers_in_words(bool need_whole_parameters);

// The state with a parameter's weights in fp32.
inline constexpr const char* kMasterState = "master";

struct WeightOptions {
  // Keep bf16 and fp16 weights also in fp32, as kMasterState. false: updates are rounded into them.
  bool master_weights = true;
  bool stochastic_rounding = false;  // bf16 without masters
  uint64_t seed = 0;                 // for the rounding of weights and states
  // Names of the whole model's parameters, if a rank has only some of them; empty: the shards'.
  std::span<const std::string> parameters = {};
};

// Limits a step's memory besides the states, because gradients and weights of lower precision are
// widened.
inline constexpr int64_t kElementsAtATime = 4 << 20;

// Not thread safe. `shards` must outlive the optimizer and must not move. Between steps their
// gradients may be set, replaced and dropped; their weights may not.
class Optimizer {
 public:
  // Throws: ConfigError when optimizer.groups matches no parameter, or when there is no room for
  //         the states
  Optimizer(std::span<const parallel::Shard> shards, const OptimizerConfig& config,
            const WeightOptions& weights = {}, const OffloadOptions& offload = {});

  // One update from the shards' gradients times `gradient_factor`, which clips or undoes a loss
  // scale. Shards without a gradient do not change. Works on a few million elements at a time.
  // Throws: Error when the disk that holds the states fails
  void step(double learning_rate, double gradient_factor = 1);

  // "<state>.<parameter>", such as exp_avg.lm_head.weight. Loading fills the states in place. The
  // optimizer must outlive the entries.
  std::vector<checkpoint::Entry> state() const;
  // The same, for states that a run with other values of state_dtype saved. `finish` brings them
  // into this run's format, and must be called once the entries are loaded.
  // saved: the dtype of the checkpoint's tensor of a name, as in state(); nothing: it has none
  // Memory: until then, the converted states as they were saved
  struct StatesToLoad {
    std::vector<checkpoint::Entry> entries;
    std::function<void()> finish;
  };
  StatesToLoad state_from(
      const std::function<std::optional<at::ScalarType>(const std::string& name)>& saved);
  // Number of updates so far.
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }
  // Bytes of this rank's states, wherever they are.
  int64_t state_bytes() const { return state_bytes_; }

 private:
  struct ShardState {
    std::vector<HeldState> states;  // the rule's, then the master's if there is one
    size_t first_tensor = 0;        // index in the store, where their tensors follow each other
    size_t num_tensors = 0;
    bool has_master = false;
  };

  StatePlan plan_states(const OffloadOptions& offload);
  // The entries of a shard's state, whose first tensor in the store is number `first`.
  std::vector<checkpoint::Entry> entries_of(size_t shard, const HeldState& state,
                                            size_t first) const;
  void fill_masters();
  UpdateItem make_item(const UpdatePiece& piece, std::span<const at::Tensor> states,
                       double gradient_factor, const at::Tensor& factor_1) const;
  bool rounds_to_nearest(const parallel::Shard& shard) const;
  void store(const UpdatePiece& piece, const UpdateItem& item,
             std::span<const at::Tensor> states) const;

  std::span<const parallel::Shard> shards_;
  WeightOptions weights_;
  StateDtype state_dtype_;
  std::unique_ptr<const UpdateRule> rule_;
  std::vector<ParameterSettings> settings_;  // one per shard
  std::vector<ShardState> states_;           // one per shard
  std::vector<UpdateChunk> chunks_;
  std::unique_ptr<StateStore> store_;
  int64_t state_bytes_ = 0;
  int64_t num_steps_ = 0;
};

}  // namespace trireme::train
