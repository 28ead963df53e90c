// Reads event files with TensorBoard itself.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::train {

// {"scalars": {tag: [[step, value], ...]},
//  "histograms": {tag: [[step, [min, max, num, sum, sum_squares], limits, counts], ...]}}
inline nlohmann::json read_with_tensorboard(const std::filesystem::path& folder) {
  constexpr const char* kReader = R"(
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0})
events.Reload()
scalars, histograms = {}, {}
for tag in events.Tags()["scalars"]:
    scalars[tag] = [[e.step, e.value] for e in events.Scalars(tag)]
for tag in events.Tags()["histograms"]:
    histograms[tag] = [[e.step, [h.min, h.max, h.num, h.sum, h.sum_squares], list(h.bucket_limit), list(h.bucket)]
                       for e in events.Histograms(tag) for h in [e.histogram_value]]
json.dump({"scalars": scalars, "histograms": histograms}, open(sys.argv[2], "w"))
)";
  const harness::TemporaryFolder scratch;
  std::ofstream(scratch / "read.py") << kReader;
  const std::string command = concat(
      "'", TRIREME_TEST_PYTHON, "' '", (scratch / "read.py").string(), "' '", folder.string(),
      "' '", (scratch / "out").string(), "' 2> '", (scratch / "errors").string(), "'");
  if (std::system(command.c_str()) != 0) throw std::runtime_error(read_file(scratch / "errors"));
  return nlohmann::json::parse(read_file(scratch / "out"));
}

}  // namespace trireme::train
