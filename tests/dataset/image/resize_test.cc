#include "trireme/dataset/image/pixels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/dataset/image/encoded.h"

namespace trireme::dataset {
namespace {

// Keys' kernel, from its two cubics with a = -1/2.
double keys(double x) {
  if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
  return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

// The definition, in fp64: out(y, x) is the weighted mean of the region's pixels, or of all, by
// triangles or Keys' kernel around the place of (y, x), scaled to the distance of two results, at
// least one pixel.
double exact(const ImageView& from, const Region& region, int64_t height, int64_t width, int64_t y,
             int64_t x, int64_t c, const ResizeOptions& options) {
  const auto weights = [&](double begin, double size, int64_t num_in, int64_t num_out, int64_t at) {
    const double scale = size / static_cast<double>(num_out);
    const double reach = std::max(scale, 1.0);
    const double centre = begin + (static_cast<double>(at) + 0.5) * scale;
    std::vector<double> found(static_cast<size_t>(num_in));
    double sum = 0;
    for (int64_t i = 0; i < num_in; ++i) {
      const bool inside = options.reads_around || (static_cast<double>(i) + 1 > begin &&
                                                   static_cast<double>(i) < begin + size);
      const double distance = std::abs(static_cast<double>(i) + 0.5 - centre) / reach;
      const double weight =
          options.filter == ResizeFilter::kBicubic ? keys(distance) : std::max(0.0, 1 - distance);
      if (inside) found[static_cast<size_t>(i)] = weight;
      sum += found[static_cast<size_t>(i)];
    }
    for (double& weight : found) weight /= sum;
    return found;
  };
  const auto down = weights(region.top, region.height, from.size.height, height, y);
  const auto right = weights(region.left, region.width, from.size.width, width, x);
  double sum = 0;
  for (size_t i = 0; i < down.size(); ++i) {
    for (size_t j = 0; j < right.size(); ++j) {
      const size_t at =
          (i * right.size() + j) * static_cast<size_t>(from.channels) + static_cast<size_t>(c);
      sum += down[i] * right[j] * from.values[at];
    }
  }
  return sum;
}

std::vector<uint8_t> resized(const ImageView& from, const Region& region, int64_t height,
                             int64_t width, const ResizeOptions& options = {}) {
  const ImageShape shape = {from.channels, height, width};
  std::vector<uint8_t> out(static_cast<size_t>(shape.num_values()));
  resize(from, region, shape, options, out.data());
  return out;
}

void expect_near_exact(const ImageView& from, const Region& region, int64_t height, int64_t width,
                       const ResizeOptions& options = {}) {
  const std::vector<uint8_t> found = resized(from, region, height, width, options);
  double largest = 0;
  for (int64_t c = 0; c < from.channels; ++c) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const auto at = static_cast<size_t>((c * height + y) * width + x);
        const double wanted = exact(from, region, height, width, y, x, c, options);
        largest = std::max(largest, std::abs(found[at] - wanted));
      }
    }
  }
  // Two roundings to whole levels, and weights that are off by less than 2^-14 each. Keys' weights
  // multiply the first by up to 1.25, which their sizes add up to.
  const double bound = options.filter == ResizeFilter::kBicubic ? 1.25 : 1.1;
  EXPECT_LE(largest, bound) << height << " x " << width;
}

TEST(Resize, MatchesItsDefinitionToOneLevel) {
  const Picture made = picture(31, 47);
  const ImageView colour = {made.values.data(), {31, 47}, 3};
  const ImageView grey = {made.values.data(), {31, 3 * 47}, 1};
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{31, 47},
                                      {16, 16},
                                      {7, 5},
                                      {1, 1},
                                      {40, 90},
                                      {31, 20},
                                      {10, 47}}) {
    expect_near_exact(colour, {0, 0, 31, 47}, height, width);
    expect_near_exact(colour, {3, 11, 20, 30}, height, width);
    expect_near_exact(colour, {3.25, 10.5, 20.5, 30.25}, height, width);
    expect_near_exact(colour, {30, 46, 1, 1}, height, width);
    expect_near_exact(grey, {0, 0, 31, 141}, height, width);
  }
}

// Of levels far from 0 and 255, because rows are cut off there before columns are summed.
TEST(Resize, BicubicMatchesItsDefinition) {
  Picture made = picture(31, 47);
  for (uint8_t& value : made.values) value = static_cast<uint8_t>(64 + value / 2);
  const ImageView from = {made.values.data(), {31, 47}, 3};
  for (const bool around : {false, true}) {
    const ResizeOptions options{.filter = ResizeFilter::kBicubic, .reads_around = around};
    for (const auto& [height, width] :
         {std::pair<int64_t, int64_t>{31, 47}, {16, 16}, {7, 5}, {1, 1}, {40, 90}, {10, 47}}) {
      expect_near_exact(from, {0, 0, 31, 47}, height, width, options);
      expect_near_exact(from, {3, 11, 20, 30}, height, width, options);
      expect_near_exact(from, {3.25, 10.5, 20.5, 30.25}, height, width, options);
    }
  }
}

// Made with Pillow 13, resize(size, Image.Resampling.BILINEAR), of the image whose value at (y, x)
// is (37 y + 91 x + 13 y x) mod 256.
TEST(Resize, MatchesPillowToOneLevel) {
  std::vector<uint8_t> values;
  for (int y = 0; y < 9; ++y) {
    for (int x = 0; x < 12; ++x)
      values.push_back(static_cast<uint8_t>(37 * y + 91 * x + 13 * y * x));
  }
  const ImageView from = {values.data(), {9, 12}, 1};
  const auto expect = [&](const Region& region, int64_t height, int64_t width,
                          const std::vector<int>& expected, const ResizeOptions& options = {}) {
    const std::vector<uint8_t> found = resized(from, region, height, width, options);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1) << i;
  };
  expect({0, 0, 9, 12}, 4, 5, {108, 122, 118, 153, 139, 138, 147, 148, 134, 102,
                               138, 136, 147, 131, 122, 131, 125, 154, 125, 119});
  expect({0, 0, 9, 12}, 12, 17,
         {0,   51,  115, 179, 70,  52,  116, 180, 117, 53,  117, 181, 163, 54,  118, 182, 233,
          23,  79,  149, 218, 115, 103, 159, 115, 105, 126, 196, 167, 146, 146, 102, 130, 186,
          51,  112, 163, 172, 138, 127, 130, 94,  90,  118, 196, 173, 158, 165, 129, 122, 129,
          79,  145, 161, 64,  140, 126, 51,  135, 92,  47,  131, 194, 183, 93,  178, 149, 72,
          106, 178, 201, 111, 194, 187, 119, 210, 173, 135, 226, 178, 100, 18,  109, 86,  15,
          134, 122, 124, 153, 140, 149, 173, 157, 174, 191, 175, 100, 69,  97,  81,  94,  118,
          162, 102, 93,  197, 129, 114, 144, 136, 160, 183, 174, 106, 82,  117, 108, 128, 157,
          190, 135, 124, 213, 172, 113, 63,  152, 145, 137, 226, 176, 118, 76,  165, 155, 100,
          217, 168, 114, 74,  163, 174, 114, 74,  130, 186, 146, 86,  97,  186, 146, 92,  43,
          85,  131, 145, 90,  99,  136, 178, 123, 116, 140, 198, 156, 132, 141, 86,  100, 146,
          17,  122, 185, 137, 88,  101, 158, 178, 149, 132, 197, 162, 113, 68,  87,  134, 185,
          40,  149, 219, 176, 133, 90,  69,  207, 217, 173, 130, 87,  44,  9,   146, 171, 137});
  expect({2, 3, 6, 7}, 3, 4, {146, 140, 151, 112, 131, 148, 162, 99, 139, 126, 164, 133});
  // BICUBIC of the whole, and what crop((2, 3, 9, 7)) and crop((1, 0, 4, 3)) leave of 17 x 12 and
  // 5 x 4.
  const ResizeOptions bicubic{.filter = ResizeFilter::kBicubic, .reads_around = true};
  expect({0, 0, 9, 12}, 4, 5, {104, 125, 113, 158, 141, 139, 147, 151, 135, 97,
                               140, 135, 149, 132, 118, 129, 124, 159, 124, 117},
         bicubic);
  expect({3 * 9 / 12.0, 2 * 12 / 17.0, 4 * 9 / 12.0, 7 * 12 / 17.0}, 4, 7,
         {171, 49,  148, 130, 31,  148, 87,  222, 106, 213, 202, 109, 233, 178,
          114, 154, 130, 150, 193, 150, 180, 69,  212, 115, 94,  154, 127, 160},
         bicubic);
  expect({0, 12 / 5.0, 3 * 9 / 4.0, 3 * 12 / 5.0}, 3, 3,
         {125, 113, 158, 147, 151, 135, 135, 149, 132}, bicubic);
}

TEST(Resize, SameSizeKeepsEveryValue) {
  const Picture made = picture(9, 14);
  const ImageView from = {made.values.data(), {9, 14}, 3};
  const std::vector<uint8_t> found = resized(from, {2, 3, 6, 8}, 6, 8);
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < 6; ++y) {
      for (int x = 0; x < 8; ++x) {
        EXPECT_EQ(found[static_cast<size_t>((c * 6 + y) * 8 + x)], made.at(y + 2, x + 3, c));
      }
    }
  }
}

TEST(Resize, AConstantImageStaysConstant) {
  const std::vector<uint8_t> values(97 * 61 * 3, 255);
  for (const int64_t size : {1, 2, 13, 50, 61, 120}) {
    const auto found = resized({values.data(), {97, 61}, 3}, {1.5, 0.25, 90, 60}, size, size);
    EXPECT_EQ(std::ranges::count(found, 255), std::ssize(found)) << size;
  }
}

TEST(Resize, AFlipMirrorsTheResult) {
  const Picture made = picture(20, 30);
  const ImageView from = {made.values.data(), {20, 30}, 3};
  std::vector<uint8_t> plain = resized(from, {1, 2, 18, 25}, 11, 13);
  const std::vector<uint8_t> flipped = resized(from, {1, 2, 18, 25}, 11, 13, {.flip = true});
  for (size_t row = 0; row < 3 * 11; ++row) {
    std::reverse(plain.begin() + static_cast<std::ptrdiff_t>(row * 13),
                 plain.begin() + static_cast<std::ptrdiff_t>(row * 13 + 13));
  }
  EXPECT_EQ(flipped, plain);
}

}  // namespace
}  // namespace trireme::dataset
