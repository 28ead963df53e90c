#include "trireme/dataset/image/decode.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

#ifdef TRIREME_HAVE_IMAGES
#include <csetjmp>
#include <cstdio>

#include <jpeglib.h>
// After jpeglib.h.
#include <jerror.h>
#include <png.h>
#endif

namespace trireme::dataset {

// libpng's simplified interface catches its own errors. libjpeg calls a function that must not
// return, and an exception must not pass through C, so it jumps back to guarded(); no frame in
// between may own anything. Warnings that concern pixels count as errors, because the file is
// damaged then. A hostile file costs little: its size is checked before memory is taken, and its
// scans are counted, each of which is a pass over the whole image. Only the box is decoded; what
// lies behind it is searched for the file's end.

void require_images() {
  TRIREME_CHECK(images_available(),
                "PNG and JPEG files need libpng and libjpeg-turbo, which this build lacks: install "
                "libpng-dev and libjpeg62-turbo-dev and build again");
}

#ifndef TRIREME_HAVE_IMAGES

bool images_available() { return false; }

ImageSize image_size(std::span<const std::byte> /*bytes*/, const std::string& /*name*/) {
  require_images();
  return {};
}

DecodedBox decode_image(std::span<const std::byte> /*bytes*/, const std::string& /*name*/,
                        const Box& /*box*/, const ImageSize& /*enough*/) {
  require_images();
  return {};
}

#else

namespace {

using Bytes = std::span<const std::byte>;

void check_size(const ImageSize& size, const std::string& name) {
  const bool fits = size.height >= 1 && size.width >= 1 && size.height <= kMostSide &&
                    size.width <= kMostSide && size.height * size.width <= kMostPixels;
  TRIREME_CHECK(fits, name, " has ", size.height, " x ", size.width, " pixels; expected 1 to ",
                kMostSide, " a side and at most ", kMostPixels, " in all");
}

Pixels empty_pixels(const ImageSize& size) {
  const auto count = static_cast<size_t>(3 * size.height * size.width);
  return {size, std::make_unique_for_overwrite<uint8_t[]>(count)};
}

// libpng's simplified interface: it catches its own errors and keeps the message.
class Png {
 public:
  static bool is(Bytes bytes) {
    constexpr std::array<uint8_t, 8> kSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    return bytes.size() >= kSignature.size() &&
           std::ranges::equal(bytes.first(kSignature.size()), std::as_bytes(std::span(kSignature)));
  }

  // Delegates, so that the destructor runs when the rest throws.
  Png(Bytes bytes, const std::string& name) : Png(name) {
    image_.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_memory(&image_, bytes.data(), bytes.size()) == 0) fail();
    // Otherwise 16-bit files without a stated gamma count as linear.
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    check_size(size(), name_);
  }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;
  ~Png() { png_image_free(&image_); }

  ImageSize size() const { return {image_.height, image_.width}; }

  Pixels read() {
    Pixels pixels = empty_pixels(size());
    if ((image_.format & PNG_FORMAT_FLAG_ALPHA) == 0) {
      image_.format = PNG_FORMAT_RGB;
      if (png_image_finish_read(&image_, nullptr, pixels.values.get(), 0, nullptr) == 0) fail();
      return pixels;
    }
    image_.format = PNG_FORMAT_RGBA;
    const auto count = static_cast<size_t>(pixels.size.height * pixels.size.width);
    const auto colours = std::make_unique_for_overwrite<uint8_t[]>(4 * count);
    if (png_image_finish_read(&image_, nullptr, colours.get(), 0, nullptr) == 0) fail();
    for (size_t i = 0; i < count; ++i) {
      const uint32_t alpha = colours[4 * i + 3];
      for (size_t c = 0; c < 3; ++c) {
        const uint32_t sum = colours[4 * i + c] * alpha + 255 * (255 - alpha);
        pixels.values[3 * i + c] = static_cast<uint8_t>((sum + 127) / 255);
      }
    }
    return pixels;
  }

 private:
  explicit Png(const std::string& name) : name_(name) {}

  [[noreturn]] void fail() {
    const std::string message = shown(image_.message);
    throw ConfigError(concat(name_, " is a damaged PNG file: ", message));
  }

  const std::string& name_;
  png_image image_{};
};

struct JpegErrors : jpeg_error_mgr {
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

// The two functions that libjpeg calls leave it by longjmp: it is C, which exceptions must not pass
// through. So only libjpeg's frames and plain ones may lie between them and guarded().
class Jpeg {
 public:
  static bool is(Bytes bytes) {
    return bytes.size() >= 3 && bytes[0] == std::byte{0xff} && bytes[1] == std::byte{0xd8} &&
           bytes[2] == std::byte{0xff};
  }

  Jpeg(Bytes bytes, const std::string& name) : Jpeg(name, bytes.data() + bytes.size()) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { leave(info); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && !is_harmless(info->err->msg_code)) leave(info);
    };
    progress_.progress_monitor = [](j_common_ptr info) {
      if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
      auto* const errors = static_cast<JpegErrors*>(info->err);
      std::snprintf(errors->message, sizeof(errors->message), "more than %d scans", kMostScans);
      std::longjmp(errors->jump, 1);
    };
    read_header(bytes);
  }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;
  ~Jpeg() { jpeg_destroy_decompress(&info_); }

  ImageSize size() const { return {info_.image_height, info_.image_width}; }

  DecodedBox read(const Box& box, const ImageSize& enough) {
    int64_t factor = 1;
    while (factor < 8 && box.height / (2 * factor) >= enough.height &&
           box.width / (2 * factor) >= enough.width) {
      factor *= 2;
    }
    info_.scale_num = static_cast<unsigned>(8 / factor);
    info_.scale_denom = 8;
    info_.out_color_space = JCS_RGB;
    guarded([this] { jpeg_start_decompress(&info_); });
    const Box rows = smaller(box, factor);
    auto left = static_cast<JDIMENSION>(rows.left);
    auto width = static_cast<JDIMENSION>(rows.width);
    if (rows.width < int64_t{info_.output_width}) {
      guarded([&] { jpeg_crop_scanline(&info_, &left, &width); });
    }
    Pixels pixels = empty_pixels({rows.height, width});
    read_rows(static_cast<JDIMENSION>(rows.top), pixels);
    const auto scale = 1.0 / static_cast<double>(factor);
    const Region region = {static_cast<double>(box.top) * scale - static_cast<double>(rows.top),
                           static_cast<double>(box.left) * scale - static_cast<double>(left),
                           static_cast<double>(box.height) * scale,
                           static_cast<double>(box.width) * scale};
    return {std::move(pixels), region};
  }

 private:
  Jpeg(const std::string& name, const std::byte* end) : name_(name), end_(end) {}

  // An honest file has about ten. Each takes a pass over the whole image.
  static constexpr int kMostScans = 100;

  // Warnings about what surrounds the pixels.
  static bool is_harmless(int code) {
    return code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM ||
           code == JWRN_BOGUS_ICC || code == JWRN_TOO_MUCH_DATA;
  }

  [[noreturn]] static void leave(j_common_ptr info) {
    auto* const errors = static_cast<JpegErrors*>(info->err);
    errors->format_message(info, errors->message);
    std::longjmp(errors->jump, 1);
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw ConfigError(
        concat(name_, " is a damaged JPEG file: ", shown(what, sizeof(errors_.message))));
  }

  // Runs calls of libjpeg. `action` makes no object that has a destructor.
  template <typename Action>
  void guarded(const Action& action) {
    if (setjmp(errors_.jump) != 0) fail(errors_.message);  // NOLINT(cert-err52-cpp)
    action();
  }

  void read_header(Bytes bytes) {
    guarded([&] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
      jpeg_read_header(&info_, TRUE);
    });
    check_size(size(), name_);
    const J_COLOR_SPACE space = info_.jpeg_color_space;
    TRIREME_CHECK(space != JCS_CMYK && space != JCS_YCCK, name_,
                  " is a JPEG file in CMYK; convert it to RGB");
    TRIREME_CHECK(space == JCS_GRAYSCALE || space == JCS_YCbCr || space == JCS_RGB, name_,
                  " is a JPEG file with ", info_.num_components,
                  " components; expected grey or three colours");
  }

  // The pixels to decode, in the smaller image. Two more on each side, because an upsampled colour
  // depends on its neighbours.
  Box smaller(const Box& box, int64_t factor) const {
    constexpr int64_t kMargin = 2;
    const auto range = [&](int64_t begin, int64_t size, int64_t most) {
      const int64_t first = std::max<int64_t>(begin / factor - kMargin, 0);
      const int64_t end = std::min((begin + size + factor - 1) / factor + kMargin, most);
      return std::pair(first, end - first);
    };
    const auto [top, height] = range(box.top, box.height, info_.output_height);
    const auto [left, width] = range(box.left, box.width, info_.output_width);
    return {top, left, height, width};
  }

  void read_rows(JDIMENSION top, const Pixels& pixels) {
    uint8_t* const values = pixels.values.get();
    const auto row_bytes = static_cast<size_t>(3 * pixels.size.width);
    const auto end = top + static_cast<JDIMENSION>(pixels.size.height);
    guarded([&] {
      if (top > 0) jpeg_skip_scanlines(&info_, top);
      while (info_.output_scanline < end) {
        JSAMPROW row = values + (info_.output_scanline - top) * row_bytes;
        jpeg_read_scanlines(&info_, &row, 1);
      }
    });
    if (end == info_.output_height) {
      guarded([this] { jpeg_finish_decompress(&info_); });
    } else if (jpeg_has_multiple_scans(&info_) == FALSE && info_.unread_marker != JPEG_EOI) {
      // In coded data 0xff is never followed by 0xd9.
      const auto* const next = reinterpret_cast<const std::byte*>(info_.src->next_input_byte);
      constexpr std::array<std::byte, 2> kEnd = {std::byte{0xff}, std::byte{JPEG_EOI}};
      if (std::ranges::search(next, end_, kEnd.begin(), kEnd.end()).empty()) {
        fail("it ends too early");
      }
    }
  }

  const std::string& name_;
  const std::byte* end_;
  JpegErrors errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
};

[[noreturn]] void refuse(const std::string& name, Bytes bytes) {
  throw ConfigError(concat(name, bytes.empty() ? " is empty" : " is neither a PNG nor a JPEG file",
                           "; expected one of these"));
}

}  // namespace

bool images_available() { return true; }

ImageSize image_size(std::span<const std::byte> bytes, const std::string& name) {
  if (Png::is(bytes)) return Png(bytes, name).size();
  if (Jpeg::is(bytes)) return Jpeg(bytes, name).size();
  refuse(name, bytes);
}

DecodedBox decode_image(std::span<const std::byte> bytes, const std::string& name, const Box& box,
                        const ImageSize& enough) {
  if (Jpeg::is(bytes)) return Jpeg(bytes, name).read(box, enough);
  if (!Png::is(bytes)) refuse(name, bytes);
  Pixels pixels = Png(bytes, name).read();
  return {std::move(pixels), as_region(box)};
}

#endif

}  // namespace trireme::dataset
