// Measured on a Xeon with AMX, one thread, 2,048 rows (2026-11-28): the gradient of a weight takes
// 670 to 780 GFLOP/s with its rounding, 410 to 510 by libtorch. Forward products and those for an
// input's gradient are faster in libtorch: 1,000 to 1,390.
#include "trireme/base/machine/bf16_product.h"

#include <limits>

#include "trireme/base/error.h"

// libtorch brings it where it is built with oneMKL, and has no header for it.
extern "C" void cblas_gemm_bf16bf16f32(int layout, int transpose_a, int transpose_b, int m, int n,
                                       int k, float alpha, const uint16_t* a, int lda,
                                       const uint16_t* b, int ldb, float beta, float* c, int ldc)
    __attribute__((weak));

namespace trireme {
namespace {

constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;  // of CBLAS

int as_int(int64_t size) {
  TRIREME_ASSERT(size > 0 && size <= std::numeric_limits<int>::max(), "a matrix of ", size);
  return static_cast<int>(size);
}

int form_of(const Bf16Matrix& matrix) { return matrix.is_transposed ? kTranspose : kNoTranspose; }

}  // namespace

bool has_bf16_product() { return has_bf16_blocks() && cblas_gemm_bf16bf16f32 != nullptr; }

void bf16_product(int64_t M, int64_t N, int64_t K, const Bf16Matrix& a, const Bf16Matrix& b,
                  Rows<float> c, bool adds) {
  cblas_gemm_bf16bf16f32(kRowMajor, form_of(a), form_of(b), as_int(M), as_int(N), as_int(K),
                         /*alpha=*/1, a.rows.data, as_int(a.rows.stride), b.rows.data,
                         as_int(b.rows.stride), /*beta=*/adds ? 1 : 0, c.data, as_int(c.stride));
}

}  // namespace trireme
