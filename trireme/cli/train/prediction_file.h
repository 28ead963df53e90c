// RUN/prediction.json: what the planner predicts of a run, by the names of its metrics, for those
// who look at the run (`trireme watch`).
#pragma once

#include <optional>
#include <string>

#include "trireme/cli/train/memory_table.h"
#include "trireme/train/config/config.h"

namespace trireme::cli {

struct PredictedNumbers {
  std::optional<double> step_seconds{};
  std::optional<BytesByKind> memory{};  // of the rank that needs the most, at the peak
};

inline constexpr const char* kPredictionName = "prediction.json";

// {"step_seconds": 0.12, "tokens_per_second": 34133, "memory_weights_bytes": 1e6, ...}
std::string prediction_text(const train::RunConfig& config, const PredictedNumbers& numbers);

// Puts the file in output.folder in place of the one there, which is of another layout when the run
// has resumed. Removes it when there is nothing to say. A folder that cannot be written is no
// error: the page lacks a section.
void write_prediction(const train::RunConfig& config, const PredictedNumbers& numbers);

}  // namespace trireme::cli
