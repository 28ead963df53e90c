// Memory of a table's rows, and the first values in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/base/random/random.h"
#include "trireme/mesh/layout.h"

namespace trireme::parallel {

// Memory of rows that are read in no order.

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
// Prefetch distance in rows that hides most of the wait.
inline constexpr int64_t kRowsAhead = 8;

// The first values of a table's rows, uniform in [-scale, scale). An element depends only on the
// seed, the table's name and its index in the whole table, so it is the same on every rank.
// Small and freely copied.
class InitialRows {
 public:
  // table: its name. width: of the whole table
  InitialRows(const std::string& table, int64_t width, double scale, uint64_t seed);

  // Writes the rows [begin, end) of a box of the table, which are as wide as the box.
  // scalar: float or double
  template <typename scalar>
  void write(const mesh::Box& box, int64_t begin, int64_t end, scalar* out) const;
  // All rows of a box, in memory of empty_rows(), by several threads.
  // dtype: fp32 or fp64
  at::Tensor make(const mesh::Box& box, c10::ScalarType dtype) const;

 private:
  int64_t width_;
  double scale_;
  RandomKey key_;
};

// The first values of rows of an open vocabulary.
class OpenValues {
 public:
  // scale: values are uniform in [-scale, scale)
  OpenValues(uint64_t seed, const std::string& table, double scale);

  // A pure function of the seed, the table's name, the key and the column.
  void write(int64_t key, std::span<float> row) const;
  void write(int64_t key, std::span<double> row) const;

 private:
  template <typename scalar>
  void write_row(int64_t key, std::span<scalar> row) const;

  uint64_t stream_;
  double scale_;
};

}  // namespace trireme::parallel
