// What a rank of a decoupled learner keeps beside its training state: the common weights that the
// learner has taken last, and in checkpoints the newest ones of the servers.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"
#include "trireme/train/learner/outer_rule.h"
#include "trireme/train/state/saved_form.h"
#include "trireme/train/state/training_state.h"

namespace trireme::train {

// Not thread safe. All that it is made from must outlive it. Only to_save() and to_load() are
// collective. Every rank of a learner has the whole model, and calls the same functions.
//
// Memory: 8 bytes per weight (fp64: 16), half as many again with momentum and with a residual
class DecoupledState final : public SavedForm {
 public:
  // state:   built
  // learner: its number
  DecoupledState(const RunConfig& config, TrainingState& state, int learner);

  // A weight that is trained.
  struct Weight {
    const parallel::Shard* shard = nullptr;
    at::Tensor base;      // common weights that this learner has taken last
    at::Tensor common;    // that have come from the servers
    at::Tensor momentum;  // the servers', as of the last checkpoint; undefined without it
    at::Tensor residual;  // fp32, of this learner's messages; undefined without it
    int fragment = 0;

    at::Tensor live() const { return shard->weights.detach(); }
  };
  const std::vector<Weight>& weights() const { return weights_; }
  std::vector<size_t> of_fragment(int fragment) const;

  // base - live, flat; zeros if one of the fragment's is not finite, whose residuals it sets to
  // zero too.
  struct Differences {
    std::map<size_t, at::Tensor> by_weight;
    bool is_finite = true;
  };
  Differences differences(int fragment) const;
  // Takes a fragment's common weights, once they are here.
  // own_share: see parallel::mix_with_anchor()
  void take(int fragment, double own_share);
  // Sets the optimizer's states of a fragment to zero: what is not finite would spoil it again.
  void reset_states(int fragment);

  std::vector<checkpoint::Entry> to_save(std::vector<checkpoint::Entry> own) override;
  PartLoad to_load(std::vector<checkpoint::Entry> own, const checkpoint::Summary& saved) override;
  void begin() override;

 private:
  std::vector<checkpoint::Entry> outer_entries() const;
  std::string own_name(const std::string& name) const;
  const Weight* find(const std::string& name) const;
  std::set<std::string> frozen_names() const;

  const RunConfig& config_;
  TrainingState& state_;
  int learner_;
  std::vector<Weight> weights_;
};

}  // namespace trireme::train
