// libtorch's kernel for bf16 takes 95 GFLOP/s forward and 42 backward on a Xeon with AMX (one
// thread, heads of 256 x 64): its products are small, and its passes over the scores go through
// memory. Here a block of scores stays in the cache between the products that make it and those
// that use it.
#include "trireme/parallel/context/bf16_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include "trireme/base/machine/bf16_numbers.h"
#include "trireme/base/machine/simd.h"
#include "trireme/parallel/context/bf16_heads.h"

namespace trireme::parallel {
namespace {

using namespace internal;

constexpr float kMasked = -std::numeric_limits<float>::max() / 4;

// Takes the first n of a query's scores with a block of keys, which have room up to a multiple of
// kLanes. Sets p to exp(scale * score - top) and returns their sum.
TRIREME_INLINE float exponentials_body(float* __restrict scores, int64_t n, float scale,
                                       float* __restrict top, uint16_t* __restrict p) {
  const int64_t padded = (n + kLanes - 1) / kLanes * kLanes;
  for (int64_t i = n; i < padded; ++i) scores[i] = kMasked;
  const float largest = lane_max(padded, scores) * scale;
  const float shift = largest > *top ? largest : *top;
  *top = shift;
  const float sum = lane_sum<float>(padded, [&](int64_t i) {
    const float e = fast_exp(scores[i] * scale - shift);
    p[i] = narrow<uint16_t>(e);
    return e;
  });
  for (int64_t i = n; i < padded; ++i) p[i] = 0;
  return sum;
}
TRIREME_MULTIVERSION float exponentials_of(float* scores, int64_t n, float scale, float* top,
                                           uint16_t* p) {
  return exponentials_body(scores, n, scale, top, p);
}

TRIREME_MULTIVERSION void scale_in_place(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// One kv head and the query heads that read it.
class Forward {
 public:
  explicit Forward(const Problem& problem) : on_(problem), scratch_(bytes(problem)) {
    const int64_t columns = Panels<uint32_t>::num_columns(on_.s);
    keys_ = {scratch_.matrix<uint32_t>(on_.H / 2, columns).data, on_.H / 2};
    values_ = scratch_.matrix<uint32_t>(round_up(on_.s) / 2, on_.H);
    scores_ = scratch_.matrix<float>(kRows, kWidth);
    p_ = scratch_.matrix<uint16_t>(kRows, kWidth);
    out_ = scratch_.matrix<float>(kRows, on_.H);
    spare_ = scratch_.matrix<uint16_t>(kRows, on_.H);
  }

  void keys(int64_t sequence, int64_t kv_head) {
    pack_columns(rows_of(on_.k, sequence, kv_head), on_.s, on_.H, keys_);
    pack_whole_rows(rows_of(on_.v, sequence, kv_head), on_.s, on_.H, values_);
  }

  void head(Bits q, Rows<uint16_t> out, float* lse, int64_t lse_stride) {
    for (int64_t first = 0; first < on_.t; first += kRows) {
      const int64_t rows = std::min(kRows, on_.t - first);
      const Bits queries = whole_rows(q, first, rows, on_.H, spare_);
      float top[kRows], sum[kRows];
      std::fill_n(top, kRows, kMasked);
      std::fill_n(sum, kRows, 0.0F);
      const int64_t limit = on_.is_causal ? std::min(on_.s, first + rows) : on_.s;
      for (int64_t key = 0; key < limit; key += kWidth) {
        const int64_t width = std::min(kWidth, limit - key), N = round_up(width);
        multiply_(kRows, N, on_.H, queries, keys_.at(key), scores_, false);
        for (int64_t row = 0; row < kRows; ++row) {
          uint16_t* p = p_.at(row).data;
          // Blocks begin at multiples of kRows, so each query reads at least one key of each.
          const int64_t n = on_.is_causal ? std::min(width, first + row + 1 - key) : width;
          if (row >= rows) {
            std::fill_n(p, N, uint16_t{0});
            continue;
          }
          const float before = top[row];
          const float part = exponentials_of(scores_.at(row).data, n, on_.scale, &top[row], p);
          std::fill(p + n, p + N, uint16_t{0});
          if (key == 0) {
            sum[row] = part;
            continue;
          }
          const float factor = fast_exp(before - top[row]);
          sum[row] = sum[row] * factor + part;
          scale_in_place(out_.at(row).data, factor, on_.H);
        }
        multiply_(kRows, on_.H, N, {p_.data, p_.stride}, values_.at(key / 2), out_, key > 0);
      }
      for (int64_t row = 0; row < rows; ++row) {
        narrow_run(out_.at(row).data, on_.H, 1 / sum[row], out.at(first + row).data);
        lse[(first + row) * lse_stride] = top[row] + std::log(sum[row]);
      }
    }
  }

 private:
  static int64_t bytes(const Problem& on) {
    return Scratch::bytes_of<uint32_t>(on.H / 2, Panels<uint32_t>::num_columns(on.s)) +
           Scratch::bytes_of<uint32_t>(round_up(on.s) / 2, on.H) +
           Scratch::bytes_of<float>(kRows, kWidth) + Scratch::bytes_of<uint16_t>(kRows, kWidth) +
           Scratch::bytes_of<float>(kRows, on.H) + Scratch::bytes_of<uint16_t>(kRows, on.H);
  }

  const Problem& on_;
  Scratch scratch_;
  Panels<uint32_t> keys_;  // pairs of k^T [H, s]
  Pairs values_;           // of v [s, H]
  Rows<float> scores_, out_;
  Rows<uint16_t> p_, spare_;
  BlockProducts multiply_;
};

}  // namespace

bool has_bf16_attention(const at::Tensor& q_BNtH) {
  return q_BNtH.is_cpu() && q_BNtH.scalar_type() == at::kBFloat16 && q_BNtH.size(-1) % 2 == 0 &&
         has_bf16_blocks();
}

PartialAttention bf16_attention(const at::Tensor& q_BNtH, const at::Tensor& k_BKsH,
                                const at::Tensor& v_BKsH, bool is_causal, double scale) {
  RECORD_FUNCTION("trireme::attention", {});
  const Problem on{with_dense_rows(q_BNtH), with_dense_rows(k_BKsH), with_dense_rows(v_BKsH),
                   is_causal, static_cast<float>(scale)};
  const at::Tensor out = empty_by_token(on.q.sizes(), on.q.options());
  const at::Tensor lse_BNt =
      at::empty({on.q.size(0), on.t, on.q.size(1)}, on.q.options().dtype(at::kFloat))
          .transpose(1, 2);
  auto* lse = lse_BNt.mutable_data_ptr<float>();
  const int64_t kv_heads = on.k.size(1);
  // The heads of a task share packed keys. With few kv heads every query head packs its own.
  const bool shares = on.k.size(0) * kv_heads >= at::get_num_threads();
  const int64_t heads = shares ? on.group : 1, tasks = kv_heads * on.group / heads;
  at::parallel_for(0, on.k.size(0) * tasks, 1, [&](int64_t begin, int64_t end) {
    Forward forward(on);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t sequence = i / tasks, first = i % tasks * heads;
      forward.keys(sequence, first / on.group);
      for (int64_t head = first; head < first + heads; ++head) {
        forward.head(rows_of(on.q, sequence, head), rows_to(out, sequence, head),
                     lse + sequence * lse_BNt.stride(0) + head * lse_BNt.stride(1),
                     lse_BNt.stride(2));
      }
    }
  });
  return {out, lse_BNt};
}

}  // namespace trireme::parallel
