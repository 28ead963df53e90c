#include "trireme/base/machine/bf16_blocks.h"

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

// One stage of a transpose: exchanges what lies `distance` rows and lanes apart.
template <size_t distance, size_t... lane>
TRIREME_INLINE void exchange_pair(Vector& first, Vector& second, std::index_sequence<lane...>) {
  const Vector a = first, b = second;
  first =
      __builtin_shufflevector(a, b, ((lane & distance) != 0 ? kTile + lane - distance : lane)...);
  second =
      __builtin_shufflevector(a, b, ((lane & distance) != 0 ? kTile + lane : lane + distance)...);
}
template <size_t distance>
TRIREME_INLINE void exchange(Vector* rows) {
#pragma GCC unroll 16
  for (size_t row = 0; row < kTile; ++row) {
    if ((row & distance) == 0) exchange_pair<distance>(rows[row], rows[row + distance], Lanes{});
  }
}

TRIREME_INLINE void transpose_tile(Vector* rows) {
  exchange<1>(rows);
  exchange<2>(rows);
  exchange<4>(rows);
  exchange<8>(rows);
}

// Stores the first `count` lanes as narrow() rounds them. Of a loop over them GCC makes scalar code.
TRIREME_INLINE void store_narrow(const Vector& bits, int64_t count, uint16_t* to) {
  Floats values;
  std::memcpy(&values, &bits, sizeof(Vector));
  const auto is_number = reinterpret_cast<Vector>(values == values);
  const Vector rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Halves halves =
      __builtin_convertvector((rounded & is_number) | (0x7fc0 & ~is_number), Halves);
  if (count == kTile) {
    std::memcpy(to, &halves, sizeof(Halves));
  } else {
    std::memcpy(to, &halves, sizeof(uint16_t) * static_cast<size_t>(count));
  }
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
        Vector rows[kTile] = {};
        for (int64_t i = 0; i < height; ++i) {
          const uint16_t* from = transpose.at(n + i, 2 * pair).data;
          if (K - 2 * pair >= 2 * kTile) {
            std::memcpy(&rows[i], from, sizeof(Vector));
          } else {
            std::memcpy(&rows[i], from, sizeof(uint16_t) * static_cast<size_t>(K - 2 * pair));
          }
        }
        transpose_tile(rows);
        for (int64_t j = 0; j < width; ++j) {
          uint32_t* out = to.at(pair + j, n).data;
          if (height == kTile) {
            std::memcpy(out, &rows[j], sizeof(Vector));
          } else {
            std::memcpy(out, &rows[j], sizeof(uint32_t) * static_cast<size_t>(height));
          }
        }
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

TRIREME_MULTIVERSION void narrow_transpose(Rows<const float> from, int64_t M, int64_t N,
                                           Rows<uint16_t> to) {
  for_each_tile(
      M,
      N, [&](int64_t m, int64_t n, int64_t height, int64_t width) __attribute__((always_inline)) {
        Vector rows[kTile] = {};
        for (int64_t i = 0; i < height; ++i) {
          std::memcpy(&rows[i], from.at(m + i, n).data, sizeof(float) * static_cast<size_t>(width));
        }
        transpose_tile(rows);
        for (int64_t j = 0; j < width; ++j) store_narrow(rows[j], height, to.at(n + j, m).data);
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
