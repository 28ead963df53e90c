#include "trireme/base/machine/bf16_blocks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/native/CPUBlas.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/simd.h"

namespace trireme {
namespace {

constexpr int64_t kTile = 16;  // of the transposes: a vector of AVX-512
using Vector = uint32_t __attribute__((vector_size(4 * kTile)));
using Floats = float __attribute__((vector_size(4 * kTile)));
using Halves = uint16_t __attribute__((vector_size(2 * kTile)));
using Lanes = std::make_index_sequence<kTile>;

// One stage of a transpose: exchanges what lies `distance` rows and lanes apart. Rows are named by
// constants, not counted by a loop, or GCC keeps them in memory.
template <size_t distance, size_t... lane>
TRIREME_INLINE void exchange_pair(Vector& first, Vector& second, std::index_sequence<lane...>) {
  const Vector a = first, b = second;
  first =
      __builtin_shufflevector(a, b, ((lane & distance) != 0 ? kTile + lane - distance : lane)...);
  second =
      __builtin_shufflevector(a, b, ((lane & distance) != 0 ? kTile + lane : lane + distance)...);
}
template <size_t distance, size_t row>
TRIREME_INLINE void exchange_row(Vector* rows) {
  if constexpr ((row & distance) == 0) {
    exchange_pair<distance>(rows[row], rows[row + distance], Lanes{});
  }
}
template <size_t distance, size_t... row>
TRIREME_INLINE void exchange(Vector* rows, std::index_sequence<row...>) {
  (exchange_row<distance, row>(rows), ...);
}

// Transposes the tile whose row i load(i, row) sets, and calls store(j, column j).
template <typename Load, typename Store, size_t... row>
TRIREME_INLINE void transpose_rows(const Load& load, const Store& store,
                                   std::index_sequence<row...> all) {
  Vector rows[kTile];
  (load(row, rows[row]), ...);
  exchange<1>(rows, all);
  exchange<2>(rows, all);
  exchange<4>(rows, all);
  exchange<8>(rows, all);
  (store(row, rows[row]), ...);
}
// The same for a tile of `height` rows and `width` columns; what it lacks is zero. Load and store
// are told whether the tile is whole.
template <typename Load, typename Store>
TRIREME_INLINE void transpose_tile(int64_t height, int64_t width, bool is_whole, const Load& load,
                                   const Store& store) {
  if (is_whole) {
    transpose_rows(
        [&](int64_t i, Vector & row) __attribute__((always_inline)) { load(i, row, true); },
        [&](int64_t j, const Vector& column)
            __attribute__((always_inline)) { store(j, column, true); },
        Lanes{});
    return;
  }
  transpose_rows(
      [&](int64_t i, Vector & row) __attribute__((always_inline)) {
        row = Vector{};
        if (i < height) load(i, row, false);
      },
      [&](int64_t j, const Vector& column) __attribute__((always_inline)) {
        if (j < width) store(j, column, false);
      },
      Lanes{});
}

// As narrow() of each lane. Of a loop over the lanes of a cut tile GCC makes scalar code.
TRIREME_INLINE void narrow_lanes(const Vector& bits, Halves& to) {
  Floats values;
  std::memcpy(&values, &bits, sizeof(Vector));
  const auto is_number = reinterpret_cast<Vector>(values == values);
  const Vector rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  to = __builtin_convertvector((rounded & is_number) | (0x7fc0 & ~is_number), Halves);
}

// Calls tile(row, column, height, width) for the tiles of an [M, N] matrix.
template <typename Tile>
TRIREME_INLINE void for_each_tile(int64_t M, int64_t N, const Tile& tile) {
  for (int64_t row = 0; row < M; row += kTile) {
    for (int64_t column = 0; column < N; column += kTile) {
      tile(row, column, M - row < kTile ? M - row : kTile, N - column < kTile ? N - column : kTile);
    }
  }
}

}  // namespace

bool has_bf16_blocks() {
  static const bool has = at::native::cpublas::could_pack(at::kBFloat16);
  return has;
}

TRIREME_MULTIVERSION void pack_rows(Rows<const uint16_t> b, int64_t K, int64_t N, Pairs to) {
  for (int64_t k = 0; k < K; k += 2) {
    const uint16_t* first = b.at(k).data;
    const uint16_t* second = b.at(k + 1).data;
    uint32_t* pairs = to.at(k / 2).data;
    if (k + 1 < K) {
#pragma GCC ivdep
      for (int64_t n = 0; n < N; ++n) pairs[n] = first[n] | uint32_t{second[n]} << 16;
    } else {
#pragma GCC ivdep
      for (int64_t n = 0; n < N; ++n) pairs[n] = first[n];
    }
  }
}

TRIREME_MULTIVERSION void pack_transpose(Rows<const uint16_t> transpose, int64_t K, int64_t N,
                                         Pairs to) {
  for_each_tile(
      N, (K + 1) / 2,
      [&](int64_t n, int64_t pair, int64_t height, int64_t width) __attribute__((always_inline)) {
        const bool is_whole = height == kTile && K - 2 * pair >= 2 * kTile;
        const int64_t count = std::min(K - 2 * pair, 2 * kTile);
        transpose_tile(
            height, width, is_whole,
            [&](int64_t i, Vector & row, bool whole) __attribute__((always_inline)) {
              std::memcpy(&row, transpose.at(n + i, 2 * pair).data,
                          whole ? sizeof(Vector) : sizeof(uint16_t) * static_cast<size_t>(count));
            },
            [&](int64_t j, const Vector& column, bool whole) __attribute__((always_inline)) {
              std::memcpy(to.at(pair + j, n).data, &column,
                          whole ? sizeof(Vector) : sizeof(uint32_t) * static_cast<size_t>(height));
            });
      });
}

TRIREME_MULTIVERSION void unpack_rows(Rows<const uint32_t> pairs, int64_t K, int64_t N,
                                      Rows<uint16_t> to) {
  for (int64_t k = 0; k < K; ++k) {
    const uint32_t* from = pairs.at(k).data;
    uint16_t* first = to.at(2 * k).data;
    uint16_t* second = to.at(2 * k + 1).data;
#pragma GCC ivdep
    for (int64_t n = 0; n < N; ++n) {
      first[n] = static_cast<uint16_t>(from[n]);
      second[n] = static_cast<uint16_t>(from[n] >> 16);
    }
  }
}

// By tiles of `to`, whose rows lie far apart, so that each row is finished in the cache.
TRIREME_MULTIVERSION void narrow_transpose(Rows<const float> from, int64_t M, int64_t N,
                                           Rows<uint16_t> to) {
  for_each_tile(
      N,
      M, [&](int64_t n, int64_t m, int64_t width, int64_t height) __attribute__((always_inline)) {
        transpose_tile(
            height, width, height == kTile && width == kTile,
            [&](int64_t i, Vector & row, bool whole) __attribute__((always_inline)) {
              std::memcpy(&row, from.at(m + i, n).data,
                          whole ? sizeof(Vector) : sizeof(float) * static_cast<size_t>(width));
            },
            [&](int64_t j, const Vector& column, bool whole) __attribute__((always_inline)) {
              Halves halves;
              narrow_lanes(column, halves);
              std::memcpy(to.at(n + j, m).data, &halves,
                          whole ? sizeof(Halves) : sizeof(uint16_t) * static_cast<size_t>(height));
            });
      });
}

BlockProducts::~BlockProducts() {
  if (has_bf16_blocks()) at::native::cpublas::brgemm_release();
}

void BlockProducts::operator()(int64_t M, int64_t N, int64_t K, Rows<const uint16_t> a, Pairs b,
                               Rows<float> c, bool add) const {
  TRIREME_ASSERT(K % 2 == 0, "pairs of ", K, " rows");
  at::native::cpublas::brgemm(M, N, K, a.stride, b.stride, c.stride, add,
                              reinterpret_cast<const at::BFloat16*>(a.data),
                              reinterpret_cast<const at::BFloat16*>(b.data), c.data,
                              /*is_vnni=*/true);
}

}  // namespace trireme
