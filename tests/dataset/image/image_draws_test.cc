#include "trireme/dataset/image/pixels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

constexpr uint64_t kDraws = 4000;

RandomKey key(uint64_t n) { return random_key(n, "test"); }

TEST(ImageDraws, ACropLiesInTheImageAndHasTheAskedAreaAndRatio) {
  const AugmentOptions options{.resized_crop = true};
  const ImageSize size = {300, 400};
  double areas = 0, ratios = 0, centres = 0;
  for (uint64_t n = 0; n < kDraws; ++n) {
    const Box box = draw_resized_crop(key(n), size, options);
    ASSERT_GE(box.top, 0);
    ASSERT_GE(box.left, 0);
    ASSERT_LE(box.top + box.height, size.height);
    ASSERT_LE(box.left + box.width, size.width);
    const double area = static_cast<double>(box.height * box.width) / (300 * 400);
    const double ratio = static_cast<double>(box.width) / static_cast<double>(box.height);
    // Sides are whole pixels: of 98 at least, half a pixel is 0.6 %.
    ASSERT_GT(area, 0.08 * 0.98);
    ASSERT_GT(ratio, 0.75 * 0.98);
    ASSERT_LT(ratio, 4.0 / 3 * 1.02);
    areas += area / kDraws;
    ratios += std::log(ratio) / kDraws;
    centres += (static_cast<double>(box.left) + static_cast<double>(box.width) / 2) / 400 / kDraws;
  }
  // Boxes that are too wide or too high for the image are drawn again.
  double expected_area = 0, expected_ratio = 0, num_fitting = 0;
  for (int i = 0; i < 300; ++i) {
    for (int j = 0; j < 300; ++j) {
      const double part = 0.08 + 0.92 * (i + 0.5) / 300;
      const double ratio = std::exp(std::log(4.0 / 3) * (2 * (j + 0.5) / 300 - 1));
      const double all = 300 * 400 * part;
      if (std::sqrt(all * ratio) > 400 || std::sqrt(all / ratio) > 300) continue;
      expected_area += part;
      expected_ratio += std::log(ratio);
      ++num_fitting;
    }
  }
  // Five standard deviations of these means: at most 0.27 and 0.17 / sqrt(kDraws) each.
  EXPECT_NEAR(areas, expected_area / num_fitting, 0.021);
  EXPECT_NEAR(ratios, expected_ratio / num_fitting, 0.014);
  EXPECT_NEAR(centres, 0.5, 0.014);
}

TEST(ImageDraws, ACropThatNeverFitsIsTheCentre) {
  // The whole area as a square, of an image that is none.
  const AugmentOptions options{.smallest_area = 1, .smallest_ratio = 1, .largest_ratio = 1};
  EXPECT_EQ(draw_resized_crop(key(1), {30, 50}, options), (Box{0, 10, 30, 30}));
  EXPECT_EQ(draw_resized_crop(key(1), {50, 30}, options), (Box{10, 0, 30, 30}));
  EXPECT_EQ(draw_resized_crop(key(1), {1, 5000}, {}), (Box{0, 2499, 1, 1}));
}

TEST(ImageDraws, HalfOfTheImagesAreFlipped) {
  int64_t flipped = 0;
  for (uint64_t n = 0; n < kDraws; ++n) flipped += draw_flip(key(n)) ? 1 : 0;
  // Four standard deviations.
  EXPECT_NEAR(static_cast<double>(flipped), kDraws / 2, 4 * std::sqrt(kDraws) / 2);
}

TEST(ImageDraws, EveryShiftOccurs) {
  std::set<std::pair<int64_t, int64_t>> shifts;
  for (uint64_t n = 0; n < kDraws; ++n) {
    const Shift shift = draw_shift(key(n), 4);
    ASSERT_LE(std::max(std::abs(shift.down), std::abs(shift.right)), 4);
    shifts.insert({shift.down, shift.right});
  }
  EXPECT_EQ(shifts.size(), 81U);
  EXPECT_EQ(draw_shift(key(3), 0).down, 0);
}

TEST(ImageDraws, DependOnTheKeyAlone) {
  // Changing one of these changes every run with augmentation.
  const Box box = draw_resized_crop(key(5), {300, 400}, {});
  EXPECT_EQ(box, draw_resized_crop(key(5), {300, 400}, {}));
  EXPECT_NE(box, draw_resized_crop(key(6), {300, 400}, {}));
  EXPECT_EQ(box, (Box{43, 78, 231, 259}));
  EXPECT_EQ(draw_shift(key(5), 4).down, 4);
  EXPECT_EQ(draw_shift(key(5), 4).right, 2);
}

TEST(ImageDraws, AShiftMovesEveryValue) {
  const std::vector<uint8_t> values = {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16};
  const auto shifted = [&](const Shift& shift, Padding padding) {
    std::vector<uint8_t> out(values.size());
    shift_image(values.data(), {2, 2, 3}, shift, padding, out.data());
    return out;
  };
  EXPECT_EQ(shifted({0, 0}, Padding::kZero), values);
  EXPECT_EQ(shifted({1, 1}, Padding::kZero),
            (std::vector<uint8_t>{0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 11, 12}));
  EXPECT_EQ(shifted({-1, 0}, Padding::kZero),
            (std::vector<uint8_t>{4, 5, 6, 0, 0, 0, 14, 15, 16, 0, 0, 0}));
  EXPECT_EQ(shifted({1, 1}, Padding::kEdge),
            (std::vector<uint8_t>{1, 1, 2, 1, 1, 2, 11, 11, 12, 11, 11, 12}));
  EXPECT_EQ(shifted({5, -5}, Padding::kEdge),
            (std::vector<uint8_t>{3, 3, 3, 3, 3, 3, 13, 13, 13, 13, 13, 13}));
  EXPECT_EQ(shifted({5, -5}, Padding::kZero), std::vector<uint8_t>(12, 0));
}

TEST(ImageDraws, LimitsThatNoImageMeetsAreRefused) {
  const auto error = [](const AugmentOptions& options) {
    return harness::message_of<ConfigError>([&] { check_augmentation(options); });
  };
  EXPECT_EQ(error({}), "");
  EXPECT_NE(error({.smallest_area = 0}).find("0 to 1 of an image's area"), std::string::npos);
  EXPECT_NE(error({.largest_area = 1.5}), "");
  EXPECT_NE(error({.smallest_area = 0.5, .largest_area = 0.4}), "");
  EXPECT_NE(error({.smallest_ratio = 2, .largest_ratio = 1}), "");
  EXPECT_NE(error({.smallest_ratio = 0}), "");
  EXPECT_NE(error({.largest_ratio = std::nan("")}), "");
  EXPECT_NE(error({.crop_padding = -1}).find("by up to -1 pixels"), std::string::npos);
}

}  // namespace
}  // namespace trireme::dataset
