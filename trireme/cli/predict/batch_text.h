// Tensors as text, for ranks that exchange batches of any size.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/source.h"

namespace trireme::cli {

// Names, dtypes, shapes and values of each batch's tensors.
// Shapes: any, on the CPU
std::string to_text(std::span<const dataset::NamedTensors> batches);
// The batches that to_text() was given, as copies.
// Throws: InternalError for any other text
std::vector<dataset::NamedTensors> from_text(std::string_view text);

}  // namespace trireme::cli
