// The files of the page that CMake builds into the program (cmake/TriremeAssets.cmake).
#pragma once

#include <span>

#include "trireme/watch/serve/assets.h"

namespace trireme::cli::verify_files {

using watch::Asset;
std::span<const Asset> assets();

}  // namespace trireme::cli::verify_files
