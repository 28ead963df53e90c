// The first values of a table's rows, uniform in [-scale, scale). An element depends only on the
// seed, the table's name and its index in the whole table, so it is the same on every rank.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/base/random/random.h"
#include "trireme/mesh/layout.h"

namespace trireme::parallel::inline internal {

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

}  // namespace trireme::parallel::inline internal
