// What a chart draws: at most as many buckets as it has columns of pixels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::watch {

// One entry a bucket. The step is the first of the bucket; NaN where no value is finite.
struct Points {
  int64_t count = 0;  // values in the range
  std::vector<int64_t> steps{};
  std::vector<double> min{};
  std::vector<double> max{};
  std::vector<double> mean{};

  void add(int64_t step, double low, double high, double middle) {
    steps.push_back(step);
    min.push_back(low);
    max.push_back(high);
    mean.push_back(middle);
  }
};

// Which steps are asked for, both ends included, and in how many buckets at most.
struct PointsRequest {
  int64_t from = 0;
  int64_t to = INT64_MAX;
  size_t most = 800;
};

// Values in each bucket when `count` of them are put into at most `most`.
inline size_t bucket_width(size_t count, size_t most) {
  const size_t buckets = std::max<size_t>(1, most);
  return std::max<size_t>(1, (count + buckets - 1) / buckets);
}

}  // namespace trireme::watch
