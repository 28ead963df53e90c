#include "trireme/parallel/embedding/pooling.h"

#include <algorithm>

#include <ATen/Parallel.h>

#include "trireme/base/machine/simd.h"
#include "trireme/parallel/embedding/rows/row_memory.h"

namespace trireme::parallel {
namespace {

constexpr int64_t kSamplesPerTask = 256;

template <typename scalar>
TRIREME_INLINE void fetch_pooled(const Pooled<scalar>& p, int64_t place) {
  // Rows lie anywhere in a large table, and the processor cannot guess them: they are fetched some
  // places ahead.
  if (place + kRowsAhead >= std::ssize(p.group_of_place)) return;
  const auto group = static_cast<size_t>(p.group_of_place[static_cast<size_t>(place + kRowsAhead)]);
  fetch_row(p.rows[group], 0, p.width * static_cast<int64_t>(sizeof(scalar)));
}

template <typename scalar>
TRIREME_INLINE void pool_body(const Pooled<scalar>& p, int64_t begin, int64_t end) {
  const int64_t width = p.width, base = p.offsets[0];
  for (int64_t b = begin; b < end; ++b) {
    scalar* const out = p.out + b * p.stride;
    const int64_t first = p.offsets[static_cast<size_t>(b)] - base;
    const int64_t last = p.offsets[static_cast<size_t>(b) + 1] - base;
    // An empty bag is a zero, also of a mean.
    if (first == last) std::fill_n(out, width, scalar{0});
    for (int64_t place = first; place < last; ++place) {
      fetch_pooled(p, place);
      const scalar* const row =
          p.rows[static_cast<size_t>(p.group_of_place[static_cast<size_t>(place)])];
      const scalar weight = p.weights == nullptr ? scalar{1} : p.weights[place];
      // The first row is written and not added, which saves clearing the output.
      if (place == first) {
#pragma GCC ivdep
        for (int64_t d = 0; d < width; ++d) out[d] = weight * row[d];
      } else {
#pragma GCC ivdep
        for (int64_t d = 0; d < width; ++d) out[d] += weight * row[d];
      }
    }
    // A division by one changes nothing and costs a pass.
    if (p.pooling != Pooling::kMean || last - first < 2) continue;
    const auto count = static_cast<scalar>(last - first);
#pragma GCC ivdep
    for (int64_t d = 0; d < width; ++d) out[d] /= count;
  }
}

template <typename scalar>
TRIREME_INLINE void copy_body(const Pooled<scalar>& p, int64_t begin, int64_t end) {
  for (int64_t place = begin; place < end; ++place) {
    fetch_pooled(p, place);
    const auto group = static_cast<size_t>(p.group_of_place[static_cast<size_t>(place)]);
    std::copy_n(p.rows[group], p.width, p.out + place * p.stride);
  }
}

template <typename scalar>
TRIREME_INLINE void weights_body(const WeightGradients<scalar>& w, int64_t begin, int64_t end) {
  for (int64_t place = begin; place < end; ++place) {
    const auto at = static_cast<size_t>(place);
    const scalar* const row = w.rows + w.group_of_place[at] * w.width;
    const scalar* const gradient = w.gradients + w.sample_of_place[at] * w.stride;
    w.out[place] = lane_sum<scalar>(w.width, [&](int64_t d) { return gradient[d] * row[d]; });
  }
}

// A copy for each instruction set; the bodies are inlined into it.
#define TRIREME_POOLING(scalar)                                                             \
  TRIREME_MULTIVERSION void pool_run(const Pooled<scalar>& p, int64_t begin, int64_t end) { \
    pool_body(p, begin, end);                                                               \
  }                                                                                         \
  TRIREME_MULTIVERSION void copy_run(const Pooled<scalar>& p, int64_t begin, int64_t end) { \
    copy_body(p, begin, end);                                                               \
  }                                                                                         \
  TRIREME_MULTIVERSION void weights_run(const WeightGradients<scalar>& w, int64_t begin,    \
                                        int64_t end) {                                      \
    weights_body(w, begin, end);                                                            \
  }
TRIREME_POOLING(float)
TRIREME_POOLING(double)
#undef TRIREME_POOLING

template <typename scalar>
void pool(const Pooled<scalar>& p) {
  const bool is_apart = p.pooling == Pooling::kNone;
  const int64_t count = is_apart ? std::ssize(p.group_of_place) : std::ssize(p.offsets) - 1;
  at::parallel_for(0, count, kSamplesPerTask, [&](int64_t begin, int64_t end) {
    is_apart ? copy_run(p, begin, end) : pool_run(p, begin, end);
  });
}

template <typename scalar>
void write_weights(const WeightGradients<scalar>& w) {
  at::parallel_for(0, std::ssize(w.group_of_place), kSamplesPerTask,
                   [&](int64_t begin, int64_t end) { weights_run(w, begin, end); });
}

}  // namespace

void pool_rows(const Pooled<float>& pooled) { pool(pooled); }
void pool_rows(const Pooled<double>& pooled) { pool(pooled); }

void write_weight_gradients(const WeightGradients<float>& weights) { write_weights(weights); }
void write_weight_gradients(const WeightGradients<double>& weights) { write_weights(weights); }

}  // namespace trireme::parallel
