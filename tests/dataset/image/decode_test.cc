#include "trireme/dataset/image/decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/dataset/image/encoded.h"
#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::vector<uint8_t> values_of(const Pixels& pixels) {
  return {pixels.values.get(), pixels.values.get() + 3 * pixels.size.height * pixels.size.width};
}

// All of an image at its own size.
std::vector<uint8_t> decoded(const std::string& bytes) {
  const ImageSize size = image_size(bytes_of(bytes), "x");
  const DecodedBox found = decode_image(bytes_of(bytes), "x", whole(size), size);
  EXPECT_EQ(found.pixels.size, size);
  return values_of(found.pixels);
}

std::string error_of(const std::string& bytes) {
  return harness::message_of<ConfigError>([&] {
    const ImageSize size = image_size(bytes_of(bytes), "a/b.jpg");
    decode_image(bytes_of(bytes), "a/b.jpg", whole(size), size);
  });
}

int largest_difference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  EXPECT_EQ(a.size(), b.size());
  int largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(int{a[i]} - int{b[i]}));
  }
  return largest;
}

TEST(Decode, PngKeepsEveryValue) {
  const Picture made = picture(7, 13);
  EXPECT_EQ(decoded(png_of(made)), made.values);
  EXPECT_EQ(decoded(png_of(7, 13, made.values, {.interlaced = true})), made.values);
  EXPECT_EQ(image_size(bytes_of(png_of(made)), "x"), (ImageSize{7, 13}));
}

TEST(Decode, PngFormsBecomeColours) {
  using Values = std::vector<uint8_t>;
  EXPECT_EQ(decoded(png_of(1, 2, {10, 200}, {.colour = PNG_COLOR_TYPE_GRAY})),
            (Values{10, 10, 10, 200, 200, 200}));
  // Two pixels of one bit.
  EXPECT_EQ(decoded(png_of(1, 2, {0x40}, {.colour = PNG_COLOR_TYPE_GRAY, .depth = 1})),
            (Values{0, 0, 0, 255, 255, 255}));
  // 16 bits, the higher byte first: 0x1234 is 18.2 of 255.
  EXPECT_EQ(decoded(png_of(1, 1, {0x12, 0x34, 0x80, 0x80, 0xff, 0xff},
                           {.colour = PNG_COLOR_TYPE_RGB, .depth = 16})),
            (Values{18, 128, 255}));
  EXPECT_EQ(decoded(png_of(1, 2, {1, 0},
                           {.colour = PNG_COLOR_TYPE_PALETTE, .palette = {1, 2, 3, 40, 50, 60}})),
            (Values{40, 50, 60, 1, 2, 3}));
}

TEST(Decode, TransparentPixelsLieOnWhite) {
  using Values = std::vector<uint8_t>;
  // (100 * 51 + 255 * 204) / 255 = 224.
  EXPECT_EQ(decoded(png_of(1, 3, {100, 0, 50, 255, 100, 0, 50, 0, 100, 0, 50, 51},
                           {.colour = PNG_COLOR_TYPE_RGB_ALPHA})),
            (Values{100, 0, 50, 255, 255, 255, 224, 204, 214}));
  EXPECT_EQ(decoded(png_of(1, 1, {100, 51}, {.colour = PNG_COLOR_TYPE_GRAY_ALPHA})),
            (Values{224, 224, 224}));
  EXPECT_EQ(decoded(png_of(1, 2, {0, 1},
                           {.colour = PNG_COLOR_TYPE_PALETTE,
                            .palette = {1, 2, 3, 40, 50, 60},
                            .alphas = {0, 255}})),
            (Values{255, 255, 255, 40, 50, 60}));
}

TEST(Decode, JpegIsNearItsPicture) {
  Picture made = picture(33, 50);
  for (uint8_t& value : made.values) value = static_cast<uint8_t>(value / 4 + 90);
  for (const int sampling : {1, 2}) {
    for (const bool progressive : {false, true}) {
      const std::string bytes =
          jpeg_of(made, {.quality = 98, .sampling = sampling, .progressive = progressive});
      EXPECT_LT(largest_difference(decoded(bytes), made.values), 24) << sampling << progressive;
    }
  }
  const std::string grey = jpeg_of(1, 1, {77}, {.quality = 100, .sampling = 1, .grey = true});
  EXPECT_EQ(decoded(grey), (std::vector<uint8_t>{77, 77, 77}));
}

// A box alone has the values that it has in the whole image.
TEST(Decode, ABoxOfAJpegIsThatPartOfTheWhole) {
  const Picture made = picture(101, 147, 3);
  for (const JpegForm& form :
       {JpegForm{.sampling = 1}, JpegForm{.sampling = 2},
        JpegForm{.sampling = 2, .progressive = true}, JpegForm{.sampling = 2, .restart = 3}}) {
    const std::string bytes = jpeg_of(made, form);
    const std::vector<uint8_t> all = decoded(bytes);
    for (uint64_t i = 0; i < 60; ++i) {
      const auto draw = random_bits({7}, i);
      Box box;
      box.height = 1 + draw[0] % 101;
      box.width = 1 + draw[1] % 147;
      box.top = draw[2] % (101 - box.height + 1);
      box.left = draw[3] % (147 - box.width + 1);
      const DecodedBox part = decode_image(bytes_of(bytes), "x", box, {box.height, box.width});
      ASSERT_EQ(part.region.height, box.height);
      ASSERT_EQ(part.region.width, box.width);
      const auto dy = static_cast<int64_t>(part.region.top);
      const auto dx = static_cast<int64_t>(part.region.left);
      ASSERT_LE(dy + box.height, part.pixels.size.height);
      ASSERT_LE(dx + box.width, part.pixels.size.width);
      for (int64_t y = 0; y < box.height; ++y) {
        const uint8_t* const found =
            part.pixels.values.get() + ((dy + y) * part.pixels.size.width + dx) * 3;
        const uint8_t* const expected = all.data() + ((box.top + y) * 147 + box.left) * 3;
        ASSERT_TRUE(std::equal(found, found + 3 * box.width, expected))
            << "row " << y << " of " << box.height << " x " << box.width << " at " << box.top
            << ", " << box.left << ", form " << form.sampling << form.progressive << form.restart;
      }
    }
  }
}

TEST(Decode, AJpegComesSmallerWhenThatIsEnough) {
  // A slope: a pixel of the smaller image is the mean of those it stands for.
  Picture made{160, 240, {}};
  for (int i = 0; i < 160 * 240; ++i) {
    for (int c = 0; c < 3; ++c) made.values.push_back(static_cast<uint8_t>(i % 240));
  }
  const std::string bytes = jpeg_of(made, {.quality = 100, .sampling = 2});
  const auto scale_of = [&](const Box& box, const ImageSize& enough) {
    const DecodedBox found = decode_image(bytes_of(bytes), "x", box, enough);
    const double scale = found.region.width / static_cast<double>(box.width);
    for (int64_t x = 0; x < static_cast<int64_t>(found.region.width); ++x) {
      const auto at = static_cast<int64_t>(found.region.left) + x;
      const double middle = static_cast<double>(box.left) + (static_cast<double>(x) + 0.5) / scale;
      EXPECT_NEAR(found.pixels.values[3 * at], middle - 0.5, 3) << scale;
    }
    return scale;
  };
  EXPECT_EQ(scale_of({0, 0, 160, 240}, {160, 240}), 1);
  EXPECT_EQ(scale_of({0, 0, 160, 240}, {81, 120}), 1);
  EXPECT_EQ(scale_of({0, 0, 160, 240}, {80, 120}), 0.5);
  EXPECT_EQ(scale_of({0, 0, 160, 240}, {32, 32}), 0.25);
  EXPECT_EQ(scale_of({0, 0, 160, 240}, {3, 4}), 0.125);
  EXPECT_EQ(scale_of({32, 64, 80, 96}, {40, 40}), 0.5);
}

TEST(Decode, DamagedFilesAreNamed) {
  const Picture made = picture(64, 64);
  EXPECT_EQ(error_of(""), "a/b.jpg is empty; expected one of these");
  EXPECT_NE(error_of("GIF89a").find("a/b.jpg is neither a PNG nor a JPEG file"), std::string::npos);
  const std::string png = png_of(made);
  EXPECT_NE(error_of(png.substr(0, png.size() / 2)).find("a/b.jpg is a damaged PNG file: "),
            std::string::npos);
  std::string crc = png;
  crc[20] = static_cast<char>(crc[20] ^ 1);  // the width
  EXPECT_NE(error_of(crc).find("CRC error"), std::string::npos) << error_of(crc);
  const std::string jpeg = jpeg_of(made);
  EXPECT_NE(error_of(jpeg.substr(0, 30)).find("a/b.jpg is a damaged JPEG file: "),
            std::string::npos);
  EXPECT_NE(error_of(jpeg.substr(0, jpeg.size() - 300)).find("Premature end of JPEG file"),
            std::string::npos)
      << error_of(jpeg.substr(0, jpeg.size() - 300));
  EXPECT_NE(error_of(jpeg_of(8, 8, std::vector<uint8_t>(256, 9), {.sampling = 1, .cmyk = true}))
                .find("a/b.jpg is a JPEG file in CMYK; convert it to RGB"),
            std::string::npos);
}

// Everything that a JPEG lacks behind the box is seen, although it is not decoded.
TEST(Decode, AJpegThatEndsTooEarlyIsRefusedWhateverTheBox) {
  for (const bool progressive : {false, true}) {
    const std::string whole_file = jpeg_of(picture(128, 64), {.progressive = progressive});
    const Box top = {0, 0, 16, 16};
    const auto error = [&](const std::string& bytes) {
      return harness::message_of<ConfigError>([&] {
        decode_image(bytes_of(bytes), "x", top, {16, 16});
      });
    };
    EXPECT_EQ(error(whole_file), "");
    EXPECT_EQ(error(whole_file + "trailing bytes"), "");
    EXPECT_NE(error(whole_file.substr(0, whole_file.size() - 2)), "") << progressive;
    EXPECT_NE(error(whole_file.substr(0, whole_file.size() - 100)), "") << progressive;
  }
}

TEST(Decode, TooManyPixelsAreRefusedBeforeTheyAreAllocated) {
  const auto with_size = [](std::string png, uint32_t width, uint32_t height) {
    std::string header = "IHDR";
    for (const uint32_t size : {width, height}) {
      for (int shift = 24; shift >= 0; shift -= 8)
        header += static_cast<char>(size >> shift & 0xff);
    }
    header += std::string{8, 2, 0, 0, 0};
    uint32_t crc = ~0U;
    for (const char byte : header) {
      crc ^= static_cast<uint8_t>(byte);
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320U : 0U);
    }
    crc = ~crc;
    for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(crc >> shift & 0xff);
    return png.replace(12, header.size(), header);
  };
  const std::string png = png_of(picture(4, 4));
  EXPECT_NE(error_of(with_size(png, 16385, 1)).find("has 1 x 16385 pixels; expected 1 to 16384"),
            std::string::npos);
  EXPECT_NE(error_of(with_size(png, 16384, 16384)).find("at most 67108864 in all"),
            std::string::npos);
  std::string jpeg = jpeg_of(picture(4, 4));
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\x40\x01\x40\x01");
  EXPECT_NE(error_of(jpeg).find("has 16385 x 16385 pixels"), std::string::npos) << error_of(jpeg);
}

}  // namespace
}  // namespace trireme::dataset
