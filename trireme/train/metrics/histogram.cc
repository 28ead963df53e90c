#include "trireme/train/metrics/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

namespace trireme::train {
namespace {

constexpr int64_t kChunk = int64_t{1} << 18;  // elements that a thread takes at a time
constexpr double kGrowth = 1.1;

// Finds a magnitude's bucket by its upper bits, because a search among the limits costs ten times
// as much. The bits name a cell: 16 to each power of two. A cell is at most 17/16 wide, less than a
// bucket, so at most one limit lies in it.
class Magnitudes {
 public:
  Magnitudes() : num_below_(size_t{1} << (64 - kShift)) {
    static_assert(kGrowth > 17.0 / 16);
    for (limits_.push_back(1e-12); limits_.back() * kGrowth < 1e20;) {
      limits_.push_back(limits_.back() * kGrowth);
    }
    limits_.push_back(std::numeric_limits<double>::max());
    for (size_t cell = 0; cell < num_below_.size(); ++cell) {
      const auto lowest = std::bit_cast<double>(uint64_t{cell} << kShift);
      num_below_[cell] =
          static_cast<int>(std::ranges::lower_bound(limits_, lowest) - limits_.begin());
    }
  }

  const std::vector<double>& limits() const { return limits_; }
  // The bucket of a finite value. Those of negative values come first, in descending magnitude.
  int bucket_of(double value) const {
    const double magnitude = std::abs(value);
    const int below = num_below_[std::bit_cast<uint64_t>(magnitude) >> kShift];
    const double limit = limits_[static_cast<size_t>(below)];
    const int num_limits = static_cast<int>(limits_.size());
    if (value < 0) return num_limits - (below + (limit < magnitude ? 1 : 0));
    return std::min(num_limits + 1 + below + (limit <= magnitude ? 1 : 0), 2 * num_limits);
  }

 private:
  static constexpr int kShift = 48;  // leaves the sign, the exponent and 4 bits of the fraction

  std::vector<double> limits_;
  std::vector<int> num_below_;  // limits below each cell
};

const Magnitudes& magnitudes() {
  static const Magnitudes all;
  return all;
}

std::vector<double> make_limits() {
  const std::vector<double>& positive = magnitudes().limits();
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

template <typename Scalar>
Histogram histogram_of_chunk(std::span<const Scalar> values, double factor) {
  const Magnitudes& all = magnitudes();
  Histogram histogram{.counts = std::vector<double>(static_cast<size_t>(num_buckets()))};
  for (const Scalar element : values) {
    const double value = static_cast<double>(element) * factor;
    if (!std::isfinite(value)) {
      ++histogram.num_nonfinite;
      continue;
    }
    ++histogram.counts[static_cast<size_t>(all.bucket_of(value))];
    histogram.minimum = std::min(histogram.minimum, value);
    histogram.maximum = std::max(histogram.maximum, value);
    histogram.sum += value;
    histogram.sum_squares += value * value;
  }
  return histogram;
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

// Chunks are added in their order, so the result does not depend on the number of threads.
Histogram histogram_of(const at::Tensor& values, double factor) {
  const at::Tensor flat = values.detach().contiguous().cpu();
  const int64_t count = flat.numel();
  std::vector<Histogram> chunks(static_cast<size_t>((count + kChunk - 1) / kChunk));
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, flat.scalar_type(), "histogram_of", [&] {
        const std::span all(flat.const_data_ptr<scalar_t>(), static_cast<size_t>(count));
        at::parallel_for(0, std::ssize(chunks), 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t size = std::min(kChunk, count - i * kChunk);
            chunks[static_cast<size_t>(i)] = histogram_of_chunk(
                all.subspan(static_cast<size_t>(i * kChunk), static_cast<size_t>(size)), factor);
          }
        });
      });
  Histogram histogram;
  for (const Histogram& chunk : chunks) histogram.add(chunk);
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
