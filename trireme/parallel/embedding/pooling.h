// Makes each sample's vector of a table from the rows of its ids.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/parallel/embedding/table_config.h"

namespace trireme::parallel {

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

// Where the gradients of one table's weights come from: out[m] = gradient of id m's sample * its
// row, summed over the columns in fixed lanes.
template <typename scalar>
struct WeightGradients {
  const scalar* rows = nullptr;              // [n, width] of the distinct ids
  std::span<const int32_t> group_of_place;   // [m]
  std::span<const int32_t> sample_of_place;  // [m]
  const scalar* gradients = nullptr;         // sample b's begin at gradients + b * stride
  int64_t stride = 0;
  int64_t width = 0;
  scalar* out = nullptr;  // [m]
};

void write_weight_gradients(const WeightGradients<float>& weights);
void write_weight_gradients(const WeightGradients<double>& weights);

}  // namespace trireme::parallel
