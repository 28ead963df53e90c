#include "trireme/parallel/context/head_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trireme/base/machine/simd.h"
#include "trireme/parallel/context/local_attention.h"

namespace trireme::parallel {
namespace {

// One token's rows of a tensor, a head's after the other.
struct TokenRows {
  std::byte* data = nullptr;  // null: there are none
  int64_t stride = 0;         // in elements, from head to head
  bool is_bf16 = false;
};
template <typename scalar>
struct TokenWeights {
  const scalar* data = nullptr;  // null: all are 1
  int64_t stride = 0;

  TRIREME_INLINE scalar of(int64_t head) const {
    return data == nullptr ? scalar{1} : data[head * stride];
  }
};
template <typename scalar>
struct Token {
  int64_t heads, width;
  TokenRows to, a, b;
  TokenWeights<scalar> weight_a, weight_b;
};

// scalar: of the sum; the others are the stored types.
template <typename scalar, typename to_t, typename a_t, typename b_t>
TRIREME_INLINE void combine_as(const Token<scalar>& token) {
  for (int64_t head = 0; head < token.heads; ++head) {
    auto* to = reinterpret_cast<to_t*>(token.to.data) + head * token.to.stride;
    const auto* a = reinterpret_cast<const a_t*>(token.a.data) + head * token.a.stride;
    const scalar of_a = token.weight_a.of(head), of_b = token.weight_b.of(head);
    if (token.b.data == nullptr) {
#pragma GCC ivdep
      for (int64_t i = 0; i < token.width; ++i) to[i] = narrow<to_t>(widen(a[i]) * of_a);
      continue;
    }
    const auto* b = reinterpret_cast<const b_t*>(token.b.data) + head * token.b.stride;
#pragma GCC ivdep
    for (int64_t i = 0; i < token.width; ++i) {
      to[i] = narrow<to_t>(widen(a[i]) * of_a + widen(b[i]) * of_b);
    }
  }
}
template <typename to_t, typename a_t>
TRIREME_INLINE void combine_to_from(const Token<float>& token) {
  token.b.is_bf16 ? combine_as<float, to_t, a_t, uint16_t>(token)
                  : combine_as<float, to_t, a_t, float>(token);
}
template <typename to_t>
TRIREME_INLINE void combine_to(const Token<float>& token) {
  token.a.is_bf16 ? combine_to_from<to_t, uint16_t>(token) : combine_to_from<to_t, float>(token);
}
TRIREME_MULTIVERSION void combine(const Token<float>& token) {
  token.to.is_bf16 ? combine_to<uint16_t>(token) : combine_to<float>(token);
}
TRIREME_MULTIVERSION void combine(const Token<double>& token) {
  combine_as<double, double, double, double>(token);
}

// A tensor's rows by sequence and token; of an undefined one there are none.
class RowsByToken {
 public:
  explicit RowsByToken(const at::Tensor& x_BNtH) {
    if (!x_BNtH.defined()) return;
    first_ = {static_cast<std::byte*>(const_cast<void*>(x_BNtH.const_data_ptr())), x_BNtH.stride(1),
              x_BNtH.scalar_type() == at::kBFloat16};
    sequence_bytes_ = x_BNtH.stride(0) * x_BNtH.element_size();
    token_bytes_ = x_BNtH.stride(2) * x_BNtH.element_size();
  }
  TokenRows at(int64_t sequence, int64_t token) const {
    TokenRows rows = first_;
    if (rows.data != nullptr) rows.data += sequence * sequence_bytes_ + token * token_bytes_;
    return rows;
  }

 private:
  TokenRows first_;
  int64_t sequence_bytes_ = 0, token_bytes_ = 0;
};
template <typename scalar>
class WeightsByToken {
 public:
  explicit WeightsByToken(const at::Tensor& x_BNt) {
    if (!x_BNt.defined()) return;
    first_ = {x_BNt.const_data_ptr<scalar>(), x_BNt.stride(1)};
    sequence_ = x_BNt.stride(0);
    token_ = x_BNt.stride(2);
  }
  TokenWeights<scalar> at(int64_t sequence, int64_t token) const {
    TokenWeights<scalar> weights = first_;
    if (weights.data != nullptr) weights.data += sequence * sequence_ + token * token_;
    return weights;
  }

 private:
  TokenWeights<scalar> first_;
  int64_t sequence_ = 0, token_ = 0;  // strides in elements
};

bool has_dense_rows(const at::Tensor& x_BNtH) {
  return x_BNtH.stride(3) == 1 || x_BNtH.size(3) == 1;
}
bool has_dense_heads(const at::Tensor& x_BNtH) {
  return !x_BNtH.defined() || x_BNtH.stride(1) == x_BNtH.size(3);
}

// Calls use(sequence, token) on libtorch's threads.
template <typename Use>
void for_each_token(const at::Tensor& x_BNtH, int64_t tokens, const Use& use) {
  constexpr int64_t kGrain = 1 << 15;  // numbers that are worth a thread
  const int64_t grain = std::max<int64_t>(1, kGrain * x_BNtH.size(0) * tokens / x_BNtH.numel());
  at::parallel_for(0, x_BNtH.size(0) * tokens, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) use(i / tokens, i % tokens);
  });
}

template <typename scalar>
void combine_on_cpu(const at::Tensor& to, const WeightedRows& a, const WeightedRows& b) {
  int64_t heads = to.size(1), width = to.size(3);
  // Without weights a token's heads are one row.
  if (!a.weight_BNt.defined() && !b.weight_BNt.defined() && has_dense_heads(to) &&
      has_dense_heads(a.rows_BNtH) && has_dense_heads(b.rows_BNtH)) {
    width *= heads;
    heads = 1;
  }
  const RowsByToken rows_to(to), rows_a(a.rows_BNtH), rows_b(b.rows_BNtH);
  const WeightsByToken<scalar> weights_a(a.weight_BNt), weights_b(b.weight_BNt);
  for_each_token(to, to.size(2), [&](int64_t sequence, int64_t token) {
    combine(Token<scalar>{heads, width, rows_to.at(sequence, token), rows_a.at(sequence, token),
                          rows_b.at(sequence, token), weights_a.at(sequence, token),
                          weights_b.at(sequence, token)});
  });
}

// As bytes, in runs as long as both have them.
void copy_on_cpu(const at::Tensor& to, const at::Tensor& from) {
  const int64_t row = to.size(1) * to.size(3);
  const bool has_dense_tokens = has_dense_heads(to) && has_dense_heads(from);
  const bool is_dense = has_dense_tokens && to.stride(2) == row && from.stride(2) == row;
  const int64_t tokens = is_dense ? 1 : to.size(2);         // runs per sequence
  const int64_t heads = has_dense_tokens ? 1 : to.size(1);  // runs per token
  const int64_t num_bytes = to[0].numel() / tokens / heads * to.element_size();
  const RowsByToken rows_to(to), rows_from(from);
  for_each_token(to, tokens, [&](int64_t sequence, int64_t token) {
    const TokenRows out = rows_to.at(sequence, token), in = rows_from.at(sequence, token);
    for (int64_t head = 0; head < heads; ++head) {
      std::memcpy(out.data + head * out.stride * to.element_size(),
                  in.data + head * in.stride * to.element_size(), num_bytes);
    }
  });
}

// Whether a loop above reads it, summing in `dtype`.
bool has_loop(const at::Tensor& x_BNtH, at::ScalarType dtype) {
  if (!x_BNtH.defined()) return true;
  const bool is_stored = x_BNtH.scalar_type() == dtype ||
                         (dtype == at::kFloat && x_BNtH.scalar_type() == at::kBFloat16);
  return x_BNtH.is_cpu() && is_stored && has_dense_rows(x_BNtH);
}

void combine_composed(const at::Tensor& to, const WeightedRows& a, const WeightedRows& b,
                      at::ScalarType dtype) {
  at::Tensor sum = to.scalar_type() == dtype ? to : at::empty_like(to, to.options().dtype(dtype));
  if (!sum.is_same(a.rows_BNtH)) sum.copy_(a.rows_BNtH);
  if (a.weight_BNt.defined()) sum.mul_(a.weight_BNt.unsqueeze(-1));
  if (b.rows_BNtH.defined()) {
    const at::Tensor rows = b.rows_BNtH.to(dtype);
    b.weight_BNt.defined() ? sum.addcmul_(rows, b.weight_BNt.unsqueeze(-1)) : sum.add_(rows);
  }
  if (!sum.is_same(to)) to.copy_(sum);
}

}  // namespace

void combine_rows(const at::Tensor& to, const WeightedRows& a, const WeightedRows& b) {
  if (to.numel() == 0) return;
  const bool is_copy = !b.rows_BNtH.defined() && !a.weight_BNt.defined();
  if (is_copy && to.scalar_type() == a.rows_BNtH.scalar_type()) {
    const bool has_runs =
        to.is_cpu() && a.rows_BNtH.is_cpu() && has_dense_rows(to) && has_dense_rows(a.rows_BNtH);
    has_runs ? copy_on_cpu(to, a.rows_BNtH) : static_cast<void>(to.copy_(a.rows_BNtH));
    return;
  }
  const at::ScalarType dtype = accumulation_dtype(to.scalar_type());
  if (!has_loop(to, dtype) || !has_loop(a.rows_BNtH, dtype) || !has_loop(b.rows_BNtH, dtype)) {
    return combine_composed(to, a, b, dtype);
  }
  dtype == at::kDouble ? combine_on_cpu<double>(to, a, b) : combine_on_cpu<float>(to, a, b);
}

void copy_rows(const at::Tensor& to_BtNH, const at::Tensor& from_BtNH) {
  combine_rows(to_BtNH.transpose(1, 2), {from_BtNH.transpose(1, 2)});
}

}  // namespace trireme::parallel
