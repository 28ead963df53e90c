// The measured time of a run's steps, compared with the prediction.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "trireme/plan/step/step_prediction.h"

namespace trireme::cli {

struct StepSample {
  double seconds = 0;
  double communication_seconds = 0;
  double peak_bytes = 0;
};

// Medians, without the first three steps, which allocate and find the pages of the data.
struct MeasuredSteps {
  int64_t num_steps = 0;
  double step_seconds = 0;
  double communication_seconds = 0;
  double peak_bytes = 0;
};
inline constexpr size_t kUncountedSteps = 3;
// More samples than kUncountedSteps.
MeasuredSteps summary_of(std::span<const StepSample> samples);
// Reads the steps from a run's metrics.jsonl.
// Throws: ConfigError when there is no such file or it has too few steps
MeasuredSteps read_steps(const std::string& run);

// Two lines: predicted beside measured, and which part of the step differs most.
std::string compare(const plan::StepPrediction& step, const MeasuredSteps& measured);
nlohmann::json to_json(const MeasuredSteps& measured);

}  // namespace trireme::cli
