// The comparison of two runs as one HTML file, to be sent and opened anywhere: the tree of modules
// with what each differs by. It makes no request.
#pragma once

#include <filesystem>
#include <string>

#include "trireme/verify/comparison.h"

namespace trireme::cli {

// What people call the two sides.
struct ComparedSides {
  std::string a;
  std::string b;
};

// Of at most as many probes as fit 5 MB: those that differ more come first.
std::string verify_page(const verify::Comparison& comparison, const ComparedSides& sides);

// Puts the file at `path`, whole or not at all.
// Throws: Error when it cannot be written
void write_verify_page(const verify::Comparison& comparison, const ComparedSides& sides,
                       const std::filesystem::path& path);

}  // namespace trireme::cli
