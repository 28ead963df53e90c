// Which Trireme this is. Each build writes the source (cmake/write_build_info.cmake).
#pragma once

#include <string_view>

namespace trireme {

// "0.1.0".
std::string_view build_version();

// The git revision of the sources, "301047ad1234", or "301047ad1234-dirty" with changes beside it;
// "" for sources without git.
std::string_view build_revision();

}  // namespace trireme
