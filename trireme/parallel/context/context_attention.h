// The entry point for models: attention of tokens split over the context axis, in either form. The
// ring is in ring_attention.h; the other form, an all-to-all, is here.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/context/ring_attention.h"
#include "trireme/parallel/context/sequence_split.h"

namespace trireme::parallel {

// Attention of tokens that lie on different ranks, causal or not. An all-to-all gives each rank the
// whole sequence of some heads, attention there is plain, and a second all-to-all brings the
// outputs back.
// Source: Jacobs et al. 2023 (DeepSpeed-Ulysses), arXiv:2309.14509, section 3

// Differentiable attention on whole sequences, for any number of heads.
// Shapes: q_BTD [B, T, heads * H], k_BTG and v_BTG [B, T, kv_heads * H] -> [B, T, heads * H]
using LocalAttention =
    std::function<at::Tensor(const at::Tensor& q_BTD, const at::Tensor& k_BTG,
                             const at::Tensor& v_BTG, int64_t heads, int64_t kv_heads)>;

struct AllToAllOptions {
  // Messages lie in the group's symmetric memory, where peers read them without a copy. Set to
  // false on a host with too little shared memory.
  bool symmetric = true;
};

// Throws: ConfigError when a rank would have no query head
void check_all_to_all(int64_t heads, int num_ranks);

// Computes the same as ring_attention(), but moves the data another way. Rank r computes share r of
// p even shares of the query heads (mesh::split_range), with the kv heads they read. A kv head that
// several ranks need is sent to each; its gradients are summed in rank order, in fp32 at least. The
// bits are the same in every run.
// Shapes:     as ring_attention()
// Comm:       an all-to-all of this rank's tokens, n = B * t * H * itemsize bytes per head: forward
//             (p-1)/p * n * (N + 2 K') out and (p-1)/p * B * T * H * itemsize * N/p back, where K'
//             is the sum over ranks of the kv heads they need (K when p divides K); backward the
//             same
// Collective: every rank of `group`, in forward and in backward
// Throws:     ConfigError when a rank would have no query head, or the shapes do not fit together
at::Tensor all_to_all_attention(const at::Tensor& q_BtD, const at::Tensor& k_BtG,
                                const at::Tensor& v_BtG, int64_t heads, int64_t kv_heads,
                                const SequenceSplit& split, comm::Communicator& group,
                                const LocalAttention& attention, AllToAllOptions options = {});
// The same with whole_attention().
at::Tensor all_to_all_attention(const at::Tensor& q_BtD, const at::Tensor& k_BtG,
                                const at::Tensor& v_BtG, int64_t heads, int64_t kv_heads,
                                const SequenceSplit& split, comm::Communicator& group,
                                const AttentionReach& reach = {}, AllToAllOptions options = {});

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
