// Memory of rows that are read in no order.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace trireme::parallel::inline internal {

// Uninitialised, in large pages where the system has them: every row that is read would otherwise
// cost the search for its page.
at::Tensor empty_rows(at::IntArrayRef sizes, c10::ScalarType dtype);
// The same for the memory of rows that has been allocated again.
void use_large_pages(const at::Tensor& rows);

// Asks for row `row` of rows of `row_bytes` bytes, to have it when it is read a little later.
inline void fetch_row(const void* rows, int64_t row, int64_t row_bytes) {
  constexpr int64_t kCacheLine = 64;
  const auto* const begin = static_cast<const char*>(rows) + row * row_bytes;
  for (int64_t b = 0; b < row_bytes; b += kCacheLine) __builtin_prefetch(begin + b);
}
// How many rows ahead hides most of the wait.
inline constexpr int64_t kRowsAhead = 8;

}  // namespace trireme::parallel::inline internal
