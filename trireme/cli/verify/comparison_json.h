// A comparison of two runs as JSON, for programs and for the page.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "trireme/verify/comparison.h"

namespace trireme::cli {

// All that was compared: verdict, first probe, those that differ, and names of those that do not.
nlohmann::json to_json(const verify::Comparison& comparison);

}  // namespace trireme::cli
