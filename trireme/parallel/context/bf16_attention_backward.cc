// Works on the transpose of the scores, so that what belongs to a query lies along the vector and
// both products with a transposed left operand find it in rows. Only the gradient of q comes out
// transposed, once per head.
#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include "trireme/base/machine/bf16_numbers.h"
#include "trireme/base/machine/simd.h"
#include "trireme/parallel/context/bf16_attention.h"
#include "trireme/parallel/context/bf16_heads.h"

namespace trireme::parallel {
namespace {

using namespace internal;

constexpr int64_t kVector = 16;

TRIREME_MULTIVERSION float product_sum(const uint16_t* a, const uint16_t* b, int64_t n) {
  return lane_sum<float>(n, [&](int64_t i) { return widen(a[i]) * widen(b[i]); });
}

// Two keys' rows of the transposed scores and of grad_out v^T, over w queries: p = exp(scale *
// score - lse) and ds = p (g - d) scale, where d = sum(grad_out * out) of a query.
struct RowPair {
  const float *score0, *score1, *g0, *g1;
  uint16_t *p0, *p1, *ds0, *ds1;
  uint32_t* ds_pairs;
};
TRIREME_INLINE void gradient_body(const RowPair& rows, const float* __restrict lse,
                                  const float* __restrict d, float scale, int64_t begin,
                                  int64_t end) {
  const float* __restrict score0 = rows.score0, * __restrict score1 = rows.score1;
  const float* __restrict g0 = rows.g0, * __restrict g1 = rows.g1;
  uint16_t* __restrict p0 = rows.p0, * __restrict p1 = rows.p1;
  uint16_t* __restrict ds0 = rows.ds0, * __restrict ds1 = rows.ds1;
  uint32_t* __restrict pairs = rows.ds_pairs;
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    const float e0 = fast_exp(score0[i] * scale - lse[i]);
    const float e1 = fast_exp(score1[i] * scale - lse[i]);
    const uint16_t x0 = narrow<uint16_t>(e0 * (g0[i] - d[i]) * scale);
    const uint16_t x1 = narrow<uint16_t>(e1 * (g1[i] - d[i]) * scale);
    p0[i] = narrow<uint16_t>(e0);
    p1[i] = narrow<uint16_t>(e1);
    ds0[i] = x0;
    ds1[i] = x1;
    pairs[i] = x0 | uint32_t{x1} << 16;
  }
}
TRIREME_MULTIVERSION void gradient_of(const RowPair& rows, const float* lse, const float* d,
                                      float scale, int64_t begin, int64_t end) {
  gradient_body(rows, lse, d, scale, begin, end);
}

class Backward {
 public:
  explicit Backward(const Problem& problem)
      : on_(problem), t_(round_up(on_.t)), s_(round_up(on_.s)), scratch_(bytes(on_.H, t_, s_)) {
    const int64_t H = on_.H, columns = Panels<float>::num_columns(t_);
    k_columns_ = scratch_.matrix<uint16_t>(s_ / kRows * H, kRows);
    k_pairs_ = scratch_.matrix<uint32_t>(H / 2, kRows);
    grad_k_ = scratch_.matrix<float>(s_, H);
    grad_v_ = scratch_.matrix<float>(s_, H);
    for (Panels<uint32_t>* pairs : {&q_columns_, &grad_columns_})
      *pairs = {scratch_.matrix<uint32_t>(H / 2, columns).data, H / 2};
    for (Pairs* pairs : {&q_rows_, &grad_rows_}) *pairs = scratch_.matrix<uint32_t>(t_ / 2, H);
    grad_q_ = {scratch_.matrix<float>(H, columns).data, H};
    lse_ = scratch_.matrix<float>(1, t_);
    d_ = scratch_.matrix<float>(1, t_);
    for (Rows<float>* block : {&scores_, &g_}) *block = scratch_.matrix<float>(kRows, kWidth);
    for (Rows<uint16_t>* block : {&p_, &ds_}) *block = scratch_.matrix<uint16_t>(kRows, kWidth);
    ds_pairs_ = scratch_.matrix<uint32_t>(kRows / 2, kWidth);
    for (Rows<uint16_t>* spare : {&spare_k_, &spare_v_})
      *spare = scratch_.matrix<uint16_t>(kRows, H);
  }

  void keys(Bits k, Bits v) {
    k_ = k;
    v_ = v;
    for (int64_t key = 0; key < on_.s; key += kRows) {
      const Bits rows = whole_rows(k, key, std::min(kRows, on_.s - key), on_.H, spare_k_);
      pack_transpose(rows, on_.H, kRows, k_pairs_);
      unpack_rows({k_pairs_.data, k_pairs_.stride}, on_.H / 2, kRows, columns_of_k(key));
    }
    std::fill_n(grad_k_.data, s_ * on_.H, 0.0F);
    std::fill_n(grad_v_.data, s_ * on_.H, 0.0F);
  }

  // Adds this query head's part to the gradients of its keys and values.
  void head(Bits q, Bits grad_out, Bits out, const float* lse, int64_t lse_stride,
            Rows<uint16_t> grad_q) {
    pack_columns(q, on_.t, on_.H, q_columns_);
    pack_whole_rows(q, on_.t, on_.H, q_rows_);
    pack_columns(grad_out, on_.t, on_.H, grad_columns_);
    pack_whole_rows(grad_out, on_.t, on_.H, grad_rows_);
    for (int64_t row = 0; row < t_; ++row) {
      const bool is_query = row < on_.t;
      lse_.data[row] = is_query ? lse[row * lse_stride] : 0;
      d_.data[row] = is_query ? product_sum(grad_out.at(row).data, out.at(row).data, on_.H) : 0;
    }
    for (int64_t key = 0; key < on_.s; key += kRows) {
      const int64_t rows = std::min(kRows, on_.s - key);
      const Bits k = whole_rows(k_, key, rows, on_.H, spare_k_);
      const Bits v = whole_rows(v_, key, rows, on_.H, spare_v_);
      // Up to the end of a panel, and then panel by panel.
      for (int64_t query = on_.is_causal ? key : 0; query < t_;) {
        const int64_t end = std::min(t_, (query / kWidth + 1) * kWidth);
        block(k, v, key, rows, query, end - query);
        query = end;
      }
    }
    for_each_panel(on_.t, [&](int64_t first, int64_t count) {
      const Rows<float> panel = grad_q_.at(first);
      narrow_transpose({panel.data, panel.stride}, on_.H, count, grad_q.at(first));
    });
  }

  template <typename Number>
  void finish(Rows<Number> grad_k, Rows<Number> grad_v) const {
    for (int64_t row = 0; row < on_.s; ++row) {
      store(grad_k_.at(row).data, grad_k.at(row).data);
      store(grad_v_.at(row).data, grad_v.at(row).data);
    }
  }

 private:
  void store(const float* from, uint16_t* to) const { narrow_run(from, on_.H, 1, to); }
  void store(const float* from, float* to) const { std::copy_n(from, on_.H, to); }

  void block(Bits k, Bits v, int64_t key, int64_t rows, int64_t query, int64_t width) {
    const int64_t M = kRows, H = on_.H;
    multiply_(M, width, H, k, q_columns_.at(query), scores_, false);
    multiply_(M, width, H, v, grad_columns_.at(query), g_, false);
    for (int64_t row = 0; row < M; row += 2) gradient_rows(row, key, rows, query, width);
    multiply_(M, H, width, {p_.data, p_.stride}, grad_rows_.at(query / 2), grad_v_.at(key), true);
    multiply_(M, H, width, {ds_.data, ds_.stride}, q_rows_.at(query / 2), grad_k_.at(key), true);
    // The first keys are read by every query, so they also set what was not written before.
    const Rows<uint16_t> k_columns = columns_of_k(key);
    multiply_(H, width, M, {k_columns.data, k_columns.stride}, ds_pairs_, grad_q_.at(query),
              key > 0);
  }

  // Rows `row` and row + 1 of p, ds and the pairs of ds.
  void gradient_rows(int64_t row, int64_t key, int64_t rows, int64_t query, int64_t width) {
    // The columns of queries before the key, or all of a row that is no key.
    const auto masked = [&](int64_t r) {
      if (r >= rows) return width;
      return on_.is_causal ? std::clamp<int64_t>(key + r - query, 0, width) : 0;
    };
    const int64_t none = masked(row), one = masked(row + 1);
    uint32_t* pairs = ds_pairs_.at(row / 2).data;
    gradient_of(
        {scores_.at(row).data, scores_.at(row + 1).data, g_.at(row).data, g_.at(row + 1).data,
         p_.at(row).data, p_.at(row + 1).data, ds_.at(row).data, ds_.at(row + 1).data, pairs},
        lse_.at(0, query).data, d_.at(0, query).data, on_.scale, none / kVector * kVector, width);
    for (const Rows<uint16_t>& values : {p_, ds_}) {
      std::fill_n(values.at(row).data, none, uint16_t{0});
      std::fill_n(values.at(row + 1).data, one, uint16_t{0});
    }
    std::fill_n(pairs, none, 0U);
    for (int64_t i = none; i < one; ++i) pairs[i] &= 0xffff;
  }

  // k^T of the block of keys that begins at `key`: [H, kRows].
  Rows<uint16_t> columns_of_k(int64_t key) const { return k_columns_.at(key / kRows * on_.H); }

  static int64_t bytes(int64_t H, int64_t t, int64_t s) {
    const int64_t columns = Panels<float>::num_columns(t);
    return Scratch::bytes_of<uint16_t>(s / kRows * H, kRows) +
           Scratch::bytes_of<uint32_t>(H / 2, kRows) + 2 * Scratch::bytes_of<float>(s, H) +
           2 * Scratch::bytes_of<uint32_t>(H / 2, columns) +
           2 * Scratch::bytes_of<uint32_t>(t / 2, H) + Scratch::bytes_of<float>(H, columns) +
           2 * Scratch::bytes_of<float>(1, t) + 2 * Scratch::bytes_of<float>(kRows, kWidth) +
           2 * Scratch::bytes_of<uint16_t>(kRows, kWidth) +
           Scratch::bytes_of<uint32_t>(kRows / 2, kWidth) +
           2 * Scratch::bytes_of<uint16_t>(kRows, H);
  }

  const Problem& on_;
  int64_t t_, s_;  // of whole blocks
  Scratch scratch_;
  Bits k_, v_;
  Rows<uint16_t> k_columns_;  // of each block of keys [H, kRows]
  Pairs k_pairs_;
  Rows<float> grad_k_, grad_v_;                // [s, H]
  Panels<uint32_t> q_columns_, grad_columns_;  // pairs of q^T and grad_out^T [H, t]
  Pairs q_rows_, grad_rows_;                   // of q and grad_out [t, H]
  Panels<float> grad_q_;                       // its transpose [H, t]
  Rows<float> lse_, d_;                        // [t]
  Rows<float> scores_, g_;                     // transposed: [keys, queries]
  Rows<uint16_t> p_, ds_;                      // likewise
  Pairs ds_pairs_;
  Rows<uint16_t> spare_k_, spare_v_;
  BlockProducts multiply_;
};

}  // namespace

AttentionGradients bf16_attention_backward(const at::Tensor& grad_out_BNtH,
                                           const at::Tensor& q_BNtH, const at::Tensor& k_BKsH,
                                           const at::Tensor& v_BKsH, const PartialAttention& whole,
                                           bool is_causal, double scale, const KeyRoom& room) {
  RECORD_FUNCTION("trireme::attention_backward", {});
  const Problem on{with_dense_rows(q_BNtH), with_dense_rows(k_BKsH), with_dense_rows(v_BKsH),
                   is_causal, static_cast<float>(scale)};
  const at::Tensor grad_out = with_dense_rows(grad_out_BNtH);
  const at::Tensor out = with_dense_rows(whole.out_BNtH);
  const auto* lse = whole.lse_BNt.const_data_ptr<float>();
  const auto empty_like = [](const at::Tensor& x) {
    return empty_by_token(x.sizes(), x.options());
  };
  const bool has_room = room.k_BKsH.defined();
  const AttentionGradients grads{empty_like(on.q), has_room ? room.k_BKsH : empty_like(on.k),
                                 has_room ? room.v_BKsH : empty_like(on.v)};
  const int64_t kv_heads = on.k.size(1);
  at::parallel_for(0, on.k.size(0) * kv_heads, 1, [&](int64_t begin, int64_t end) {
    Backward backward(on);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t sequence = i / kv_heads, kv_head = i % kv_heads;
      backward.keys(rows_of(on.k, sequence, kv_head), rows_of(on.v, sequence, kv_head));
      for (int64_t head = kv_head * on.group; head < (kv_head + 1) * on.group; ++head) {
        backward.head(rows_of(on.q, sequence, head), rows_of(grad_out, sequence, head),
                      rows_of(out, sequence, head),
                      lse + sequence * whole.lse_BNt.stride(0) + head * whole.lse_BNt.stride(1),
                      whole.lse_BNt.stride(2), rows_to(grads.q_BNtH, sequence, head));
      }
      if (has_room) {
        backward.finish(floats_to(grads.k_BKsH, sequence, kv_head),
                        floats_to(grads.v_BKsH, sequence, kv_head));
      } else {
        backward.finish(rows_to(grads.k_BKsH, sequence, kv_head),
                        rows_to(grads.v_BKsH, sequence, kv_head));
      }
    }
  });
  return grads;
}

}  // namespace trireme::parallel
