#include "trireme/train/metrics/histogram.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace trireme::train {
namespace {

constexpr int64_t kChunk = int64_t{1} << 18;  // elements that are converted at a time

std::vector<double> make_limits() {
  std::vector<double> positive;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
  positive.push_back(std::numeric_limits<double>::max());
  std::vector<double> limits;
  for (size_t i = positive.size(); i > 0; --i) limits.push_back(-positive[i - 1]);
  limits.push_back(0);
  limits.insert(limits.end(), positive.begin(), positive.end());
  return limits;
}

int64_t num_buckets() { return std::ssize(bucket_limits()); }

at::Tensor view(double* data, at::IntArrayRef shape) {
  return at::from_blob(data, shape, at::kDouble);
}

// part: finite values in fp64, at least one.
Histogram histogram_of_chunk(const at::Tensor& part, const at::Tensor& limits) {
  const at::Tensor bucket =
      at::bucketize(part, limits, /*out_int32=*/false, /*right=*/true).clamp_max(num_buckets() - 1);
  const at::Tensor counts = at::bincount(bucket, {}, num_buckets()).to(at::kCPU, at::kDouble);
  const double* const data = counts.const_data_ptr<double>();
  return {.counts = {data, data + num_buckets()},
          .minimum = part.min().item<double>(),
          .maximum = part.max().item<double>(),
          .sum = part.sum().item<double>(),
          .sum_squares = part.square().sum().item<double>()};
}

}  // namespace

std::span<const double> bucket_limits() {
  static const std::vector<double> limits = make_limits();
  return limits;
}

double Histogram::num() const { return std::accumulate(counts.begin(), counts.end(), 0.0); }

void Histogram::add(const Histogram& other) {
  counts.resize(std::max(counts.size(), other.counts.size()));
  for (size_t i = 0; i < other.counts.size(); ++i) counts[i] += other.counts[i];
  minimum = std::min(minimum, other.minimum);
  maximum = std::max(maximum, other.maximum);
  sum += other.sum;
  sum_squares += other.sum_squares;
  num_nonfinite += other.num_nonfinite;
}

Histogram histogram_of(const at::Tensor& values, double factor) {
  const at::NoGradGuard no_gradient;
  const at::Tensor flat = values.detach().reshape({-1});
  const at::Tensor limits =
      view(const_cast<double*>(bucket_limits().data()), {num_buckets()}).to(flat.device());
  Histogram histogram;
  for (int64_t begin = 0; begin < flat.numel(); begin += kChunk) {
    at::Tensor part = flat.slice(0, begin, std::min(begin + kChunk, flat.numel())).to(at::kDouble);
    if (factor != 1) part = part * factor;
    const at::Tensor finite = part.masked_select(part.isfinite());
    histogram.num_nonfinite += static_cast<double>(part.numel() - finite.numel());
    if (finite.numel() > 0) histogram.add(histogram_of_chunk(finite, limits));
  }
  return histogram;
}

void sum_on_root(comm::Communicator& world, std::span<Histogram> histograms) {
  const auto num_rows = std::ssize(histograms);
  const int64_t width = num_buckets() + 3;
  std::vector<double> sums(static_cast<size_t>(num_rows * width));
  std::vector<double> extremes;
  auto row = sums.begin();
  for (const Histogram& histogram : histograms) {
    std::ranges::copy(histogram.counts, row);
    row += num_buckets();
    *row++ = histogram.sum;
    *row++ = histogram.sum_squares;
    *row++ = histogram.num_nonfinite;
    extremes.insert(extremes.end(), {-histogram.minimum, histogram.maximum});
  }
  world.reduce(view(sums.data(), {num_rows, width}), 0)->wait();
  world.reduce(view(extremes.data(), {num_rows, 2}), 0, {.operation = comm::ReduceOp::kMax})
      ->wait();
  if (world.rank() != 0) return;
  row = sums.begin();
  auto extreme = extremes.begin();
  for (Histogram& histogram : histograms) {
    histogram.counts.assign(row, row + num_buckets());
    row += num_buckets();
    histogram.sum = *row++;
    histogram.sum_squares = *row++;
    histogram.num_nonfinite = *row++;
    histogram.minimum = -*extreme++;
    histogram.maximum = *extreme++;
  }
}

}  // namespace trireme::train
