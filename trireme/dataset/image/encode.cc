#include "trireme/dataset/image/encode.h"

#include "trireme/base/error.h"
#include "trireme/dataset/image/decode.h"

#ifdef TRIREME_HAVE_IMAGES
#include <png.h>
#endif

namespace trireme::dataset {

#ifndef TRIREME_HAVE_IMAGES

std::string encode_png(const at::Tensor& /*image_CHW*/) {
  require_images();
  return {};
}

#else

std::string encode_png(const at::Tensor& image_CHW) {
  TRIREME_ASSERT(image_CHW.dim() == 3 && image_CHW.scalar_type() == at::kByte &&
                     (image_CHW.size(0) == 1 || image_CHW.size(0) == 3),
                 "a PNG file of ", image_CHW.sizes(), " ", image_CHW.scalar_type());
  const at::Tensor pixels = image_CHW.permute({1, 2, 0}).contiguous();
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(pixels.size(0));
  image.width = static_cast<png_uint_32>(pixels.size(1));
  image.format = pixels.size(2) == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  const auto* const values = pixels.const_data_ptr<uint8_t>();
  const auto write = [&](void* to, png_alloc_size_t& size) {
    const bool is_written = png_image_write_to_memory(&image, to, &size, /*convert_to_8_bit=*/0,
                                                      values, 0, nullptr) != 0;
    TRIREME_ASSERT(is_written, "libpng writes no image: ", std::string(image.message));
  };
  png_alloc_size_t size = 0;
  write(nullptr, size);  // asks for the size
  std::string bytes(size, '\0');
  write(bytes.data(), size);
  bytes.resize(size);
  return bytes;
}

#endif

}  // namespace trireme::dataset
