// The entry point for models: attention of tokens split over the context axis, in either form.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/context/attention_reach.h"
#include "trireme/parallel/context/context_form.h"
#include "trireme/parallel/context/ring_attention.h"
#include "trireme/parallel/context/sequence_split.h"

namespace trireme::parallel {

// Everything that a layer needs to attend over the context axis. One object serves all layers of a
// step. `group` must outlive it.
struct ContextParallel {
  comm::Communicator& group;
  SequenceSplit split;
  ContextForm form = ContextForm::kRing;
  RingOptions ring{};

  // This rank's tokens, for cutting embeddings, targets and rotary tables.
  int64_t num_tokens() const { return split.num_tokens(group.rank()); }
  at::Tensor positions() const { return split.positions(group.rank()); }
  at::Tensor local(const at::Tensor& whole, int64_t dim) const {
    return split.local(whole, dim, group.rank());
  }
};

// For checking a config, before anything is communicated.
// Throws: ConfigError when the form cannot handle `heads` heads on this group
void check_context(ContextForm form, int64_t heads, int num_ranks);

// Shapes, Comm, Collective, Throws: those of the form's own function
at::Tensor context_attention(const at::Tensor& q_BtD, const at::Tensor& k_BtG,
                             const at::Tensor& v_BtG, int64_t heads, int64_t kv_heads,
                             const ContextParallel& context, const AttentionReach& reach = {});

}  // namespace trireme::parallel
