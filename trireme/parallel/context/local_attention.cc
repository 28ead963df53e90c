#include "trireme/parallel/context/local_attention.h"

#include <limits>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/matrix_product.h"
#include "trireme/parallel/context/bf16_attention.h"

namespace trireme::parallel {

void check_attention_shapes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            int64_t heads, int64_t kv_heads, const SequenceSplit& split,
                            const SequenceSplit& keys, int rank, int num_ranks) {
  TRIREME_CHECK(q.dim() == 3 && k.dim() == 3 && k.sizes() == v.sizes() && q.size(0) == k.size(0),
                "attention of q ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(),
                "; expected [B, t, N * H] and twice [B, s, K * H]");
  TRIREME_CHECK(q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type(),
                "attention of ", q.scalar_type(), " queries, ", k.scalar_type(), " keys and ",
                v.scalar_type(), " values; expected one dtype");
  TRIREME_CHECK(kv_heads > 0 && heads > 0 && heads % kv_heads == 0, heads, " query heads read ",
                kv_heads, " kv heads; expected a multiple");
  TRIREME_CHECK(q.size(2) % heads == 0 && q.size(2) / heads * kv_heads == k.size(2), "queries of ",
                heads, " heads are ", q.size(2), " wide, keys of ", kv_heads, " heads ", k.size(2),
                "; expected N * H and K * H");
  TRIREME_CHECK_OP(split.num_ranks(), ==, num_ranks, "ranks of the split and of the group");
  TRIREME_CHECK_OP(keys.num_ranks(), ==, num_ranks, "ranks of the keys' split and of the group");
  TRIREME_CHECK_OP(q.size(1), ==, split.num_tokens(rank), "tokens of rank ", rank,
                   " and what the split gives it");
  TRIREME_CHECK_OP(k.size(1), ==, keys.num_tokens(rank), "keys of rank ", rank,
                   " and what the split gives it");
}

at::Tensor view_heads(const at::Tensor& x_BtD, int64_t heads) {
  // unflatten() needs the last dimension in one run; the kernels read heads where they lie.
  const at::Tensor x = x_BtD.stride(-1) == 1 ? x_BtD : x_BtD.contiguous();
  return x.unflatten(2, {heads, x.size(2) / heads});
}

at::Tensor split_heads(const at::Tensor& x_BtD, int64_t heads) {
  return view_heads(x_BtD, heads).transpose(1, 2);
}

namespace {

bool has_flash_kernel(const at::Tensor& q) {
  // Other dtypes and devices take the composed form, which needs a [t, s] matrix per head.
  const at::ScalarType dtype = q.scalar_type();
  return q.is_cpu() && (dtype == at::kDouble || dtype == at::kFloat || dtype == at::kBFloat16 ||
                        dtype == at::kHalf);
}

// [B, N, t, ...] -> [B, K, N/K, t, ...]: groups the query heads by kv head.
at::Tensor view_groups(const at::Tensor& x, int64_t kv_heads) {
  return x.unflatten(1, {kv_heads, x.size(1) / kv_heads});
}

// Windows' edges are few, so libtorch's operators serve for them.
bool has_kernel(const at::Tensor& q, const BlockReach& reach, const ScoreForm& scores) {
  return !reach.edge && scores.softcap == 0 && !scores.bias_Nts.defined() &&
         (has_bf16_attention(q) || has_flash_kernel(q));
}

// Scaled, capped, biased and masked: [B, K, N/K, t, s]. slope: set to the cap's derivative if there
// is one.
at::Tensor scores_of(const at::Tensor& q, const at::Tensor& k, const BlockReach& reach,
                     const ScoreForm& form, at::Tensor* slope = nullptr) {
  const double scale = form.scale_of(q.size(-1));
  at::Tensor scores = at::matmul(q, k.transpose(-1, -2)).mul_(scale);
  if (form.softcap > 0) {
    scores.div_(form.softcap).tanh_();
    if (slope != nullptr) *slope = scores.square().neg_().add_(1);
    scores.mul_(form.softcap);
  }
  if (form.bias_Nts.defined()) {
    scores.add_(form.bias_Nts.unflatten(0, {scores.size(1), scores.size(2)}));
  }
  if (reach.is_whole()) return scores;
  const at::Tensor all = at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool));
  const at::Tensor is_masked = reach.is_causal ? at::triu(all, 1) : at::tril(all, *reach.edge - 1);
  return scores.masked_fill_(is_masked, -std::numeric_limits<double>::infinity());
}

// libtorch's kernel multiplies narrow numbers more slowly than fp32.
at::Tensor for_kernel(const at::Tensor& x) { return x.itemsize() == 2 ? widened(x) : x; }

}  // namespace

at::Tensor empty_by_token(at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::empty({shape[0], shape[2], shape[1], shape[3]}, options).transpose(1, 2);
}

at::Tensor block_of(const at::Tensor& x, const mesh::Range& sequences, const mesh::Range& tokens) {
  return x.narrow(0, sequences.offset, sequences.size).narrow(2, tokens.offset, tokens.size);
}

at::ScalarType accumulation_dtype(at::ScalarType dtype) {
  // fp64 stays fp64: tests compare layouts at 1e-10.
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

PartialAttention attention(const at::Tensor& q_BNtH, const at::Tensor& k_BKsH,
                           const at::Tensor& v_BKsH, const BlockReach& reach,
                           const ScoreForm& scores) {
  if (!has_kernel(q_BNtH, reach, scores)) {
    return composed_attention(q_BNtH, k_BKsH, v_BKsH, reach, scores);
  }
  const double scale = scores.scale_of(q_BNtH.size(-1));
  if (has_bf16_attention(q_BNtH)) {
    return bf16_attention(q_BNtH, k_BKsH, v_BKsH, reach.is_causal, scale);
  }
  const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      for_kernel(q_BNtH), for_kernel(k_BKsH), for_kernel(v_BKsH), /*dropout_p=*/0.0,
      reach.is_causal, /*attn_mask=*/{}, scale);
  return {rounded(out, q_BNtH.scalar_type()), lse};
}

AttentionGradients attention_backward(const at::Tensor& grad_out_BNtH, const at::Tensor& q_BNtH,
                                      const at::Tensor& k_BKsH, const at::Tensor& v_BKsH,
                                      const PartialAttention& whole, const BlockReach& reach,
                                      const ScoreForm& scores, const KeyRoom& room) {
  if (!has_kernel(q_BNtH, reach, scores)) {
    return composed_attention_backward(grad_out_BNtH, q_BNtH, k_BKsH, v_BKsH, whole, reach, scores);
  }
  const double scale = scores.scale_of(q_BNtH.size(-1));
  if (has_bf16_attention(q_BNtH)) {
    return bf16_attention_backward(grad_out_BNtH, q_BNtH, k_BKsH, v_BKsH, whole, reach.is_causal,
                                   scale, room);
  }
  auto [q, k, v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      for_kernel(grad_out_BNtH), for_kernel(q_BNtH), for_kernel(k_BKsH), for_kernel(v_BKsH),
      for_kernel(whole.out_BNtH), whole.lse_BNt, /*dropout_p=*/0.0, reach.is_causal,
      /*attn_mask=*/{}, scale);
  return {q, k, v, {}};
}

PartialAttention composed_attention(const at::Tensor& q_BNtH, const at::Tensor& k_BKsH,
                                    const at::Tensor& v_BKsH, const BlockReach& reach,
                                    const ScoreForm& scores) {
  const at::ScalarType dtype = accumulation_dtype(q_BNtH.scalar_type());
  const at::Tensor q = view_groups(q_BNtH.to(dtype), k_BKsH.size(1));
  const at::Tensor k = k_BKsH.to(dtype).unsqueeze(2);
  const at::Tensor v = v_BKsH.to(dtype).unsqueeze(2);
  const at::Tensor s = scores_of(q, k, reach, scores);
  const at::Tensor lse = s.logsumexp(-1);
  // exp(s - lse) is the softmax, with no second pass for its sum.
  const at::Tensor out = at::matmul((s - lse.unsqueeze(-1)).exp_(), v);
  return {out.flatten(1, 2).to(q_BNtH.scalar_type()), lse.flatten(1, 2)};
}

// With p = exp(s - lse): dv = p^T do, ds = p * (do v^T - sum(do * out)), dq = ds k, dk = ds^T q. A
// cap multiplies ds by its slope, 1 - tanh(s / c)^2.
AttentionGradients composed_attention_backward(const at::Tensor& grad_out_BNtH,
                                               const at::Tensor& q_BNtH, const at::Tensor& k_BKsH,
                                               const at::Tensor& v_BKsH,
                                               const PartialAttention& whole,
                                               const BlockReach& reach, const ScoreForm& scores) {
  const at::ScalarType dtype = accumulation_dtype(q_BNtH.scalar_type());
  const int64_t K = k_BKsH.size(1);
  const at::Tensor grad_out = view_groups(grad_out_BNtH.to(dtype), K);
  const at::Tensor out = view_groups(whole.out_BNtH.to(dtype), K);
  const at::Tensor lse = view_groups(whole.lse_BNt.to(dtype), K);
  const at::Tensor q = view_groups(q_BNtH.to(dtype), K);
  const at::Tensor k = k_BKsH.to(dtype).unsqueeze(2);
  const at::Tensor v = v_BKsH.to(dtype).unsqueeze(2);

  // Recomputed from lse and not kept: keeping it is what this attention avoids.
  at::Tensor slope;
  const at::Tensor p = scores_of(q, k, reach, scores, &slope).sub_(lse.unsqueeze(-1)).exp_();
  const at::Tensor rows = (grad_out * out).sum(-1, /*keepdim=*/true);
  at::Tensor grad_s = at::matmul(grad_out, v.transpose(-1, -2)).sub_(rows).mul_(p);
  at::Tensor grad_bias;
  if (scores.bias_Nts.defined()) grad_bias = grad_s.flatten(1, 2).sum(0);
  if (slope.defined()) grad_s.mul_(slope);
  grad_s.mul_(scores.scale_of(q.size(-1)));
  return {at::matmul(grad_s, k).flatten(1, 2), at::matmul(grad_s.transpose(-1, -2), q).sum(2),
          at::matmul(p.transpose(-1, -2), grad_out).sum(2), grad_bias};
}

}  // namespace trireme::parallel
