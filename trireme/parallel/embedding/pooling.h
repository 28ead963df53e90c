// Makes each sample's vector of a table from the rows of its ids.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/parallel/embedding/table_config.h"

namespace trireme::parallel::inline internal {

template <typename scalar>
struct Pooled {
  std::span<const scalar* const> rows;      // [n] of the distinct ids
  std::span<const int32_t> group_of_place;  // [m] the distinct id of each id
  std::span<const int64_t> offsets;         // [B + 1] as in TableIds
  const scalar* weights = nullptr;          // [m]; null: all 1
  Pooling pooling = Pooling::kSum;
  int64_t width = 0;
  scalar* out = nullptr;  // sample b's, or with kNone id m's, begins at out + b * stride
  int64_t stride = 0;
};

// A sample's rows are added in the order of its ids; a mean is their sum divided by their number. A
// sample without ids gets zeros.
void pool_rows(const Pooled<float>& pooled);
void pool_rows(const Pooled<double>& pooled);

}  // namespace trireme::parallel::inline internal
