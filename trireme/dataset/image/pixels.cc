#include "trireme/dataset/image/pixels.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/machine/multiversion.h"

namespace trireme::dataset {
namespace {

constexpr int kWeightBits = 14;
constexpr int32_t kOne = 1 << kWeightBits;

// The inputs of one result value: pixels from `first` on, with weights that add up to kOne.
struct Taps {
  int64_t first = 0;
  int64_t count = 0;
  size_t weights = 0;  // place of the first
};

struct Filter {
  std::vector<Taps> taps;
  std::vector<int32_t> weights;
  int64_t end() const { return taps.back().first + taps.back().count; }  // of the inputs
};

// The weight of a pixel at a distance, in pixels of the smaller image.
double weight_at(ResizeFilter filter, double distance) {
  const double x = std::abs(distance);
  if (filter == ResizeFilter::kBilinear) return std::max(1 - x, 0.0);
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? a * (((x - 5) * x + 8) * x - 4) : 0;
}

// Along one side: `size` pixels from `begin` on become `num_out`. Pixels lie in [0, num_in).
Filter make_filter(double begin, double size, int64_t num_in, int64_t num_out,
                   const ResizeOptions& options) {
  const double scale = size / static_cast<double>(num_out);
  const double unit = std::max(scale, 1.0);
  const double reach = options.filter == ResizeFilter::kBicubic ? 2 * unit : unit;
  int64_t lowest = 0, end = num_in;
  if (!options.reads_around) {
    lowest = std::max<int64_t>(static_cast<int64_t>(std::floor(begin)), 0);
    end = std::min(static_cast<int64_t>(std::ceil(begin + size)), num_in);
  }
  Filter filter;
  std::vector<double> exact;
  for (int64_t i = 0; i < num_out; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const int64_t first =
        std::clamp(static_cast<int64_t>(std::floor(centre - reach + 0.5)), lowest, end - 1);
    const int64_t last =
        std::clamp(static_cast<int64_t>(std::floor(centre + reach + 0.5)), first + 1, end);
    exact.clear();
    double sum = 0;
    for (int64_t x = first; x < last; ++x) {
      exact.push_back(weight_at(options.filter, (static_cast<double>(x) + 0.5 - centre) / unit));
      sum += exact.back();
    }
    const size_t place = filter.weights.size();
    int32_t left = kOne;
    for (const double weight : exact) {
      filter.weights.push_back(static_cast<int32_t>(std::floor(weight / sum * kOne + 0.5)));
      left -= filter.weights.back();
    }
    // A constant image stays as it is.
    *std::max_element(filter.weights.begin() + static_cast<std::ptrdiff_t>(place),
                      filter.weights.end()) += left;
    filter.taps.push_back({first, last - first, place});
  }
  return filter;
}

// Bicubic weights may be negative, and their sums outside of a byte.
inline uint8_t rounded(int32_t sum) {
  return static_cast<uint8_t>(std::clamp((sum + kOne / 2) >> kWeightBits, 0, 255));
}

// out[i] = the sum over k of weights[k] * rows[k * stride + i].
TRIREME_MULTIVERSION void blend_rows(const uint8_t* rows, int64_t stride, const int32_t* weights,
                                     int64_t num_rows, int64_t num_values, uint8_t* out) {
  constexpr int64_t kBlock = 64;
  for (int64_t begin = 0; begin < num_values; begin += kBlock) {
    int32_t sums[kBlock] = {};
    const int64_t size = std::min(kBlock, num_values - begin);
    for (int64_t k = 0; k < num_rows; ++k) {
      const uint8_t* const row = rows + k * stride + begin;
      const int32_t weight = weights[k];
      if (size == kBlock) {
        for (int64_t i = 0; i < kBlock; ++i) sums[i] += weight * row[i];
      } else {
        for (int64_t i = 0; i < size; ++i) sums[i] += weight * row[i];
      }
    }
    for (int64_t i = 0; i < size; ++i) out[begin + i] = rounded(sums[i]);
  }
}

// One row of the result, from a row that lies at the height of the result already.
template <int64_t C>
void blend_columns(const uint8_t* row, const Filter& filter, bool flip, int64_t plane,
                   uint8_t* out) {
  const auto width = std::ssize(filter.taps);
  for (int64_t x = 0; x < width; ++x) {
    const Taps& taps = filter.taps[static_cast<size_t>(x)];
    const int32_t* const weights = filter.weights.data() + taps.weights;
    const uint8_t* from = row + taps.first * C;
    int32_t sums[C] = {};
    for (int64_t k = 0; k < taps.count; ++k, from += C) {
      for (int64_t c = 0; c < C; ++c) sums[c] += weights[k] * from[c];
    }
    for (int64_t c = 0; c < C; ++c) out[c * plane + (flip ? width - 1 - x : x)] = rounded(sums[c]);
  }
}

void blend_columns(int64_t channels, const uint8_t* row, const Filter& filter, bool flip,
                   int64_t plane, uint8_t* out) {
  if (channels == 1) return blend_columns<1>(row, filter, flip, plane, out);
  blend_columns<3>(row, filter, flip, plane, out);
}

// Rows first, because neighbours in a row are summed side by side. Only the region's columns.
void blend_rows_first(const ImageView& from, const Filter& vertical, const Filter& horizontal,
                      bool flip, uint8_t* out) {
  const int64_t C = from.channels, stride = from.size.width * C;
  const auto height = std::ssize(vertical.taps), width = std::ssize(horizontal.taps);
  const int64_t left = horizontal.taps.front().first, right = horizontal.end();
  std::vector<uint8_t> row(static_cast<size_t>(right * C));
  for (int64_t y = 0; y < height; ++y) {
    const Taps& taps = vertical.taps[static_cast<size_t>(y)];
    blend_rows(from.values + taps.first * stride + left * C, stride,
               vertical.weights.data() + taps.weights, taps.count, (right - left) * C,
               row.data() + left * C);
    blend_columns(C, row.data(), horizontal, flip, height * width, out + y * width);
  }
}

// In Pillow's order, which shows where the sums of a bicubic filter are cut off between the two.
void blend_columns_first(const ImageView& from, const Filter& vertical, const Filter& horizontal,
                         bool flip, uint8_t* out) {
  const int64_t C = from.channels, top = vertical.taps.front().first;
  const auto height = std::ssize(vertical.taps), width = std::ssize(horizontal.taps);
  const int64_t stride = C * width;  // of a row: a plane's part for each channel
  std::vector<uint8_t> rows(static_cast<size_t>((vertical.end() - top) * stride));
  for (int64_t y = top; y < vertical.end(); ++y) {
    blend_columns(C, from.values + y * from.size.width * C, horizontal, flip, width,
                  rows.data() + (y - top) * stride);
  }
  std::vector<uint8_t> row(static_cast<size_t>(stride));
  for (int64_t y = 0; y < height; ++y) {
    const Taps& taps = vertical.taps[static_cast<size_t>(y)];
    blend_rows(rows.data() + (taps.first - top) * stride, stride,
               vertical.weights.data() + taps.weights, taps.count, stride, row.data());
    for (int64_t c = 0; c < C; ++c) {
      std::copy_n(row.data() + c * width, width, out + (c * height + y) * width);
    }
  }
}

// A whole number in [0, count).
int64_t below(RandomKey key, uint64_t index, int64_t count) {
  const auto drawn = static_cast<int64_t>(random_uniform(key, index) * static_cast<double>(count));
  return std::min(drawn, count - 1);
}

}  // namespace

void resize(const ImageView& from, const Region& region, const ImageShape& shape,
            const ResizeOptions& options, uint8_t* out) {
  TRIREME_ASSERT(from.channels == shape.channels && (shape.channels == 1 || shape.channels == 3),
                 from.channels, " channels to ", shape.channels);
  const Filter vertical =
      make_filter(region.top, region.height, from.size.height, shape.height, options);
  const Filter horizontal =
      make_filter(region.left, region.width, from.size.width, shape.width, options);
  if (options.filter == ResizeFilter::kBicubic) {
    blend_columns_first(from, vertical, horizontal, options.flip, out);
  } else {
    blend_rows_first(from, vertical, horizontal, options.flip, out);
  }
}

void check_augmentation(const AugmentOptions& options) {
  TRIREME_CHECK(options.smallest_area > 0 && options.smallest_area <= options.largest_area &&
                    options.largest_area <= 1,
                "a random crop has ", options.smallest_area, " to ", options.largest_area,
                " of an image's area; expected a range above 0 and up to 1");
  TRIREME_CHECK(options.smallest_ratio >= 1e-3 && options.smallest_ratio <= options.largest_ratio &&
                    options.largest_ratio <= 1e3,
                "a random crop's width is ", options.smallest_ratio, " to ", options.largest_ratio,
                " times its height; expected a range within 0.001 to 1000");
  TRIREME_CHECK(options.crop_padding >= 0 && options.crop_padding <= kMostSide,
                "images move by up to ", options.crop_padding, " pixels; expected 0 to ",
                kMostSide);
}

Box draw_resized_crop(RandomKey key, const ImageSize& size, const AugmentOptions& options) {
  const RandomKey draws = random_key(key.value, "image/resized_crop");
  const auto H = static_cast<double>(size.height);
  const auto W = static_cast<double>(size.width);
  const double lowest = std::log(options.smallest_ratio);
  const double highest = std::log(options.largest_ratio);
  constexpr uint64_t kTries = 10, kNumbers = 4;
  for (uint64_t at = 0; at < kTries * kNumbers; at += kNumbers) {
    const double part = options.smallest_area +
                        random_uniform(draws, at) * (options.largest_area - options.smallest_area);
    const double ratio = std::exp(lowest + random_uniform(draws, at + 1) * (highest - lowest));
    const auto width = static_cast<int64_t>(std::round(std::sqrt(H * W * part * ratio)));
    const auto height = static_cast<int64_t>(std::round(std::sqrt(H * W * part / ratio)));
    if (width < 1 || height < 1 || width > size.width || height > size.height) continue;
    return {below(draws, at + 2, size.height - height + 1),
            below(draws, at + 3, size.width - width + 1), height, width};
  }
  const double ratio = std::clamp(W / H, options.smallest_ratio, options.largest_ratio);
  const auto width = std::clamp<int64_t>(std::llround(H * ratio), 1, size.width);
  const auto height = std::clamp<int64_t>(std::llround(W / ratio), 1, size.height);
  return {(size.height - height) / 2, (size.width - width) / 2, height, width};
}

bool draw_flip(RandomKey key) {
  return random_uniform(random_key(key.value, "image/flip"), 0) < 0.5;
}

Shift draw_shift(RandomKey key, int64_t most) {
  const RandomKey draws = random_key(key.value, "image/shift");
  return {below(draws, 0, 2 * most + 1) - most, below(draws, 1, 2 * most + 1) - most};
}

void shift_image(const uint8_t* from, const ImageShape& shape, const Shift& shift, Padding padding,
                 uint8_t* to) {
  for (int64_t c = 0; c < shape.channels; ++c) {
    for (int64_t y = 0; y < shape.height; ++y) {
      const int64_t row = y - shift.down;
      const bool row_is_inside = row >= 0 && row < shape.height;
      const uint8_t* const values =
          from + (c * shape.height + std::clamp<int64_t>(row, 0, shape.height - 1)) * shape.width;
      for (int64_t x = 0; x < shape.width; ++x) {
        const int64_t column = x - shift.right;
        const bool is_inside = row_is_inside && column >= 0 && column < shape.width;
        const uint8_t value = values[std::clamp<int64_t>(column, 0, shape.width - 1)];
        *to++ = is_inside || padding == Padding::kEdge ? value : uint8_t{0};
      }
    }
  }
}

}  // namespace trireme::dataset
