// Images to try readers with, and their PNG and JPEG files in memory, made by the libraries.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <jpeglib.h>
#include <png.h>

#include "trireme/base/random/random.h"

namespace trireme::dataset {

struct Picture {
  int height = 0;
  int width = 0;
  std::vector<uint8_t> values;  // [H, W, 3]
  uint8_t at(int y, int x, int c) const {
    return values[static_cast<size_t>((y * width + x) * 3 + c)];
  }
};

// Slopes, an edge and some noise: nothing in it is symmetric.
inline Picture picture(int height, int width, uint64_t seed = 0) {
  Picture made{height, width, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const auto noise =
          static_cast<int>(random_bits({seed}, static_cast<uint64_t>(y * width + x))[0] % 16);
      const int edge = x > width / 3 ? 60 : 0;
      for (const int value : {2 * x + edge, 3 * y + edge, x + y + 20}) {
        made.values.push_back(static_cast<uint8_t>(std::min(value % 240 + noise, 255)));
      }
    }
  }
  return made;
}

struct PngForm {
  int colour = PNG_COLOR_TYPE_RGB;
  int depth = 8;
  bool interlaced = false;
  std::vector<uint8_t> palette{};  // red, green, blue of each entry
  std::vector<uint8_t> alphas{};   // of the palette's entries
};

// rows: as the file holds them, without filters
inline std::string png_of(int height, int width, const std::vector<uint8_t>& rows,
                          const PngForm& form = {}) {
  std::string out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &out,
      [](png_structp at, png_bytep bytes, png_size_t size) {
        static_cast<std::string*>(png_get_io_ptr(at))->append(reinterpret_cast<char*>(bytes), size);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height),
               form.depth, form.colour, form.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!form.palette.empty()) {
    std::vector<png_color> entries;
    for (size_t i = 0; i + 2 < form.palette.size(); i += 3) {
      entries.push_back({form.palette[i], form.palette[i + 1], form.palette[i + 2]});
    }
    png_set_PLTE(png, info, entries.data(), static_cast<int>(entries.size()));
  }
  if (!form.alphas.empty()) {
    png_set_tRNS(png, info, form.alphas.data(), static_cast<int>(form.alphas.size()), nullptr);
  }
  const size_t row_bytes = rows.size() / static_cast<size_t>(height);
  std::vector<png_bytep> pointers;
  for (int y = 0; y < height; ++y) {
    pointers.push_back(const_cast<png_bytep>(rows.data() + static_cast<size_t>(y) * row_bytes));
  }
  png_set_rows(png, info, pointers.data());
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  return out;
}

inline std::string png_of(const Picture& picture) {
  return png_of(picture.height, picture.width, picture.values);
}

struct JpegForm {
  int quality = 90;
  int sampling = 2;  // pixels per value of colour, in both directions
  bool progressive = false;
  bool grey = false;
  bool cmyk = false;  // four values a pixel
  int restart = 0;    // blocks between restart markers
};

inline std::string jpeg_of(int height, int width, const std::vector<uint8_t>& values,
                           const JpegForm& form = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_height = static_cast<JDIMENSION>(height);
  info.image_width = static_cast<JDIMENSION>(width);
  info.input_components = form.cmyk ? 4 : form.grey ? 1 : 3;
  info.in_color_space = form.cmyk ? JCS_CMYK : form.grey ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, form.quality, TRUE);
  info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = form.sampling;
  info.restart_interval = static_cast<unsigned>(form.restart);
  if (form.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(values.data()) +
                static_cast<size_t>(info.next_scanline) * static_cast<size_t>(width) *
                    static_cast<size_t>(info.input_components);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string out(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return out;
}

inline std::string jpeg_of(const Picture& picture, const JpegForm& form = {}) {
  return jpeg_of(picture.height, picture.width, picture.values, form);
}

}  // namespace trireme::dataset
