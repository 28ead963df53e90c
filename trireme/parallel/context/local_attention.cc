#include "trireme/parallel/context/local_attention.h"

#include <algorithm>
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

at::Tensor laid_out_by_token(const at::Tensor& x_BNtH) {
  return x_BNtH.transpose(1, 2).contiguous().transpose(1, 2);
}

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
                                      const ScoreForm& scores) {
  if (!has_kernel(q_BNtH, reach, scores)) {
    return composed_attention_backward(grad_out_BNtH, q_BNtH, k_BKsH, v_BKsH, whole, reach, scores);
  }
  const double scale = scores.scale_of(q_BNtH.size(-1));
  if (has_bf16_attention(q_BNtH)) {
    return bf16_attention_backward(grad_out_BNtH, q_BNtH, k_BKsH, v_BKsH, whole, reach.is_causal,
                                   scale);
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

template <typename Clear>
bool Frontier::move(const mesh::Range& sequences, const mesh::Range& tokens, const Clear& clear) {
  const auto first = ends_.begin() + sequences.offset;
  const auto last = first + sequences.size;
  // Ranges of a sequence are written in rising order, so one number per sequence says what has been
  // written.
  const bool is_new = std::all_of(first, last, [&](int64_t end) { return end <= tokens.offset; });
  const int64_t written = tokens.offset + tokens.size;
  const int64_t cleared = is_new ? tokens.offset : written;
  // What was skipped has to be cleared once, or later parts would be added to memory that nobody
  // wrote.
  for (auto end = first; end != last; ++end) {
    if (*end < cleared)
      clear(mesh::Range{end - ends_.begin(), 1}, mesh::Range{*end, cleared - *end});
    *end = std::max(*end, written);
  }
  return is_new;
}

OnlineSoftmax::OnlineSoftmax(const at::Tensor& q_BNtH)
    : shape_(q_BNtH.sizes().vec()),
      options_(q_BNtH.options().dtype(accumulation_dtype(q_BNtH.scalar_type()))),
      read_(q_BNtH.size(0)) {}

void OnlineSoftmax::allocate() {
  if (out_BNtH_.defined()) return;
  out_BNtH_ = empty_by_token(shape_, options_);
  lse_BNt_ = at::empty({shape_[0], shape_[2], shape_[1]}, options_).transpose(1, 2);
}

bool OnlineSoftmax::move(const mesh::Range& sequences, const mesh::Range& queries) {
  return read_.move(sequences, queries, [&](const mesh::Range& which, const mesh::Range& tokens) {
    block_of(out_BNtH_, which, tokens).zero_();
    block_of(lse_BNt_, which, tokens).fill_(-std::numeric_limits<double>::infinity());
  });
}

// Clears what no part has written.
void OnlineSoftmax::fill() {
  allocate();
  move({0, shape_[0]}, {shape_[2], 0});
}

at::Tensor OnlineSoftmax::out_BNtH() {
  fill();
  return out_BNtH_;
}

at::Tensor OnlineSoftmax::lse_BNt() {
  fill();
  return lse_BNt_;
}

void OnlineSoftmax::add(const AttentionBlock& block, const PartialAttention& part) {
  // The first part often covers all. Taking it over saves a pass over the memory.
  if (!out_BNtH_.defined() && part.out_BNtH.sizes() == at::IntArrayRef(shape_)) {
    out_BNtH_ = laid_out_by_token(part.out_BNtH);
    lse_BNt_ = part.lse_BNt;
    move(block.sequences, block.queries);
    return;
  }
  allocate();
  out_BNtH_ = laid_out_by_token(out_BNtH_.to(options_.dtype()));
  const at::Tensor out = block_of(out_BNtH_, block.sequences, block.queries);
  const at::Tensor lse = block_of(lse_BNt_, block.sequences, block.queries);
  if (move(block.sequences, block.queries)) {
    out.copy_(part.out_BNtH);
    lse.copy_(part.lse_BNt);
    return;
  }
  // logaddexp joins two parts without overflow, however large their scores.
  const at::Tensor sum = at::logaddexp(lse, part.lse_BNt);
  out.mul_(lse.sub(sum).exp_().unsqueeze(-1));
  out.addcmul_(part.out_BNtH.to(out.scalar_type()), part.lse_BNt.sub(sum).exp_().unsqueeze(-1));
  lse.copy_(sum);
}

void OnlineSoftmax::add_sinks(const at::Tensor& sinks_N) {
  fill();
  out_BNtH_ = laid_out_by_token(out_BNtH_.to(options_.dtype()));
  const at::Tensor sum = at::logaddexp(lse_BNt_, sinks_N.to(options_.dtype()).unsqueeze(-1));
  out_BNtH_.mul_((lse_BNt_ - sum).exp_().unsqueeze(-1));
  lse_BNt_ = sum;
}

BlockSum::BlockSum(const at::Tensor& like_BNtH, const at::Tensor& out_BNtH)
    : shape_(like_BNtH.sizes().vec()),
      options_(like_BNtH.options().dtype(accumulation_dtype(like_BNtH.scalar_type()))),
      sum_BNtH_(out_BNtH),
      added_(like_BNtH.size(0)) {}

bool BlockSum::move(const mesh::Range& sequences, const mesh::Range& tokens) {
  return added_.move(sequences, tokens, [&](const mesh::Range& which, const mesh::Range& cleared) {
    block_of(sum_BNtH_, which, cleared).zero_();
  });
}

void BlockSum::add(const mesh::Range& sequences, const mesh::Range& tokens,
                   const at::Tensor& part) {
  if (!sum_BNtH_.defined() && part.sizes() == at::IntArrayRef(shape_)) {
    sum_BNtH_ = laid_out_by_token(part);
    move(sequences, tokens);
    return;
  }
  if (!sum_BNtH_.defined()) sum_BNtH_ = empty_by_token(shape_, options_);
  widen();
  const at::Tensor block = block_of(sum_BNtH_, sequences, tokens);
  if (move(sequences, tokens)) {
    block.copy_(part);
  } else {
    block.add_(part);
  }
}

void BlockSum::widen() { sum_BNtH_ = laid_out_by_token(sum_BNtH_.to(options_.dtype())); }

at::Tensor BlockSum::sum_BNtH() { return sum_BNtH(c10::typeMetaToScalarType(options_.dtype())); }

at::Tensor BlockSum::sum_BNtH(at::ScalarType dtype) {
  if (!sum_BNtH_.defined()) sum_BNtH_ = empty_by_token(shape_, options_);
  move({0, shape_[0]}, {shape_[2], 0});
  return laid_out_by_token(sum_BNtH_.to(dtype));
}

}  // namespace trireme::parallel
