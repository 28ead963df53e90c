#include "trireme/base/machine/bf16_numbers.h"

#include <algorithm>

#include <ATen/Parallel.h>

#include "trireme/base/machine/simd.h"

namespace trireme {
namespace {

constexpr int64_t kGrain = 1 << 15;

TRIREME_MULTIVERSION void widen_run(const uint16_t* from, int64_t count, float factor, float* to) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) to[i] = widen(from[i]) * factor;
}

TRIREME_MULTIVERSION void split_run(const float* from, int64_t count, uint16_t* high,
                                    uint16_t* low) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    high[i] = narrow<uint16_t>(from[i]);
    low[i] = narrow<uint16_t>(from[i] - widen(high[i]));
  }
}

}  // namespace

TRIREME_MULTIVERSION void narrow_run(const float* from, int64_t count, float factor, uint16_t* to) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) to[i] = narrow<uint16_t>(from[i] * factor);
}

void narrow_numbers(const float* from, int64_t count, float factor, uint16_t* to) {
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    narrow_run(from + begin, end - begin, factor, to + begin);
  });
}

void widen_numbers(const uint16_t* from, int64_t count, float factor, float* to) {
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    widen_run(from + begin, end - begin, factor, to + begin);
  });
}

void split_numbers(Rows<const float> from, int64_t rows, int64_t columns, uint16_t* high,
                   uint16_t* low) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, columns));
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      split_run(from.at(row).data, columns, high + row * columns, low + row * columns);
    }
  });
}

}  // namespace trireme
