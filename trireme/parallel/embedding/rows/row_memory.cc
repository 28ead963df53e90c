#include "trireme/parallel/embedding/rows/row_memory.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include "trireme/base/round_up.h"

namespace trireme::parallel::inline internal {

at::Tensor empty_rows(at::IntArrayRef sizes, c10::ScalarType dtype) {
  at::Tensor rows = at::empty(sizes, at::TensorOptions(dtype));
  use_large_pages(rows);
  return rows;
}

void use_large_pages(const at::Tensor& rows) {
  constexpr uintptr_t kLargePage = uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<uintptr_t>(rows.mutable_data_ptr());
  const uintptr_t first = round_up(begin, kLargePage);
  const uintptr_t end = (begin + rows.nbytes()) / kLargePage * kLargePage;
  // Only advice: where it fails, rows are as right and a little slower.
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}

}  // namespace trireme::parallel::inline internal
