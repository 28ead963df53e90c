// Histograms of tensors that lie on several ranks. The buckets are TensorBoard's and the same for
// all values, so the histograms of a tensor's parts add up to the one of the whole tensor.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::train {

// The upper limits of the buckets, ascending: bucket i holds the values from limit i - 1 to below
// limit i. The magnitudes grow by a tenth from 1e-12 to 1e20; the last bucket ends at the largest
// double.
// Source: tensorflow/core/lib/histogram/histogram.cc
std::span<const double> bucket_limits();

struct Histogram {
  double num() const;  // finite values
  void add(const Histogram& other);

  std::vector<double> counts{};  // by bucket, whole numbers; empty: no values
  double minimum = std::numeric_limits<double>::infinity();
  double maximum = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double sum_squares = 0;
  double num_nonfinite = 0;  // NaN and infinite values; they are in none of the above
};

// The histogram of the elements of `values`, times `factor`. Takes 12.4 kB more per 2^18 elements.
// values: any shape and floating dtype
Histogram histogram_of(const at::Tensor& values, double factor = 1);

// Replaces rank 0's histograms by the sums over all ranks; the others' are left undefined. Counts,
// minimum and maximum do not depend on how ranks share the values; `sum` and `sum_squares` are
// fp64 sums in rank order.
// Comm:       some 12.4 kB per histogram, in two reductions to rank 0
// Collective: every rank of `world`, with the same number of histograms
void sum_on_root(comm::Communicator& world, std::span<Histogram> histograms);

struct NamedHistogram {
  std::string tag;
  Histogram histogram;
};

}  // namespace trireme::train
