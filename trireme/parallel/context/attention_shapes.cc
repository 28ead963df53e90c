#include "trireme/parallel/context/attention_shapes.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel::inline internal {

void check_attention_shapes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            int64_t heads, int64_t kv_heads, const SequenceSplit& split, int rank,
                            int num_ranks) {
  TRIREME_CHECK(q.dim() == 3 && k.dim() == 3 && k.sizes() == v.sizes() && q.size(0) == k.size(0) &&
                    q.size(1) == k.size(1),
                "attention of q ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(),
                "; expected [B, t, N * H] and twice [B, t, K * H]");
  TRIREME_CHECK(q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type(),
                "attention of ", q.scalar_type(), " queries, ", k.scalar_type(), " keys and ",
                v.scalar_type(), " values; expected one dtype");
  TRIREME_CHECK(kv_heads > 0 && heads > 0 && heads % kv_heads == 0, heads, " query heads read ",
                kv_heads, " kv heads; expected a multiple");
  TRIREME_CHECK(q.size(2) % heads == 0 && q.size(2) / heads * kv_heads == k.size(2), "queries of ",
                heads, " heads are ", q.size(2), " wide, keys of ", kv_heads, " heads ", k.size(2),
                "; expected N * H and K * H");
  TRIREME_CHECK_OP(split.num_ranks(), ==, num_ranks, "ranks of the split and of the group");
  TRIREME_CHECK_OP(q.size(1), ==, split.num_tokens(rank), "tokens of rank ", rank,
                   " and what the split gives it");
}

at::Tensor view_heads(const at::Tensor& x_BtD, int64_t heads) {
  const at::Tensor x = x_BtD.stride(-1) == 1 ? x_BtD : x_BtD.contiguous();
  return x.unflatten(2, {heads, x.size(2) / heads});
}

at::Tensor split_heads(const at::Tensor& x_BtD, int64_t heads) {
  return view_heads(x_BtD, heads).transpose(1, 2);
}

}  // namespace trireme::parallel::inline internal
