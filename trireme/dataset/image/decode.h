// Turns the bytes of a PNG or JPEG file into pixels, with libpng and libjpeg-turbo. Allocates for
// pixels only after their number is checked.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "trireme/dataset/image/pixels.h"

namespace trireme::dataset {

// Whether this build has the libraries. Without them every other function here throws ConfigError.
bool images_available();
// Throws: ConfigError unless images_available()
void require_images();

// Reads the header.
// name: the file, for messages
// Throws: ConfigError for anything else than a PNG or JPEG file, for a CMYK JPEG, and for more than
//         kMostSide pixels a side or kMostPixels in all
ImageSize image_size(std::span<const std::byte> bytes, const std::string& name);

struct DecodedBox {
  Pixels pixels;
  Region region;  // of `pixels`: the box that was asked for
};

// The pixels of a box, 8 bits a colour: grey and palettes become colours, 16 bits become 8, and
// transparent pixels lie on white. A box of a JPEG may come 2, 4 or 8 times smaller when it then is
// still at least `enough` in both directions; libjpeg decodes it so in less time.
// Throws: ConfigError as image_size(), and when the file is damaged or ends too early. Behind the
//         box, a JPEG is only looked through for its end.
DecodedBox decode_image(std::span<const std::byte> bytes, const std::string& name, const Box& box,
                        const ImageSize& enough);

}  // namespace trireme::dataset
