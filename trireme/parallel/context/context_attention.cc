#include "trireme/parallel/context/context_attention.h"

#include "trireme/parallel/context/all_to_all_attention.h"

namespace trireme::parallel {

void check_context(ContextForm form, int64_t heads, int num_ranks) {
  if (form == ContextForm::kAllToAll) check_all_to_all(heads, num_ranks);
}

at::Tensor context_attention(const at::Tensor& q_BtD, const at::Tensor& k_BtG,
                             const at::Tensor& v_BtG, int64_t heads, int64_t kv_heads,
                             const ContextParallel& context, const AttentionReach& reach) {
  if (context.form == ContextForm::kAllToAll) {
    return all_to_all_attention(q_BtD, k_BtG, v_BtG, heads, kv_heads, context.split, context.group,
                                reach);
  }
  return ring_attention(q_BtD, k_BtG, v_BtG, heads, kv_heads, context.split, context.group, reach,
                        context.ring);
}

}  // namespace trireme::parallel
