// The page's files, which CMake builds into the library (cmake/TriremeAssets.cmake).
#pragma once

#include <span>
#include <string_view>

namespace trireme::watch {

struct Asset {
  std::string_view name;  // "app.js"
  std::string_view content;
};

std::span<const Asset> assets();

// By the name's ending; "text/plain; charset=utf-8" for others.
std::string_view type_of_asset(std::string_view name);

}  // namespace trireme::watch
