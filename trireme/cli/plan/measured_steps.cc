#include "trireme/cli/plan/measured_steps.h"

#include <cmath>
#include <filesystem>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/numbers.h"
#include "trireme/base/words.h"
#include "trireme/cli/console.h"
#include "trireme/train/metrics/logged_step.h"
#include "trireme/train/metrics/metrics.h"

namespace trireme::cli {
namespace {

double number_or_0(const train::LoggedStep& step, std::string_view name) {
  const double value = value_in(step, name);
  return std::isfinite(value) ? value : 0;
}

std::string in_percent(double predicted, double measured) {
  return measured > 0 ? format("%+.0f %%", 100 * (predicted / measured - 1)) : "";
}

}  // namespace

MeasuredSteps summary_of(std::span<const StepSample> samples) {
  TRIREME_ASSERT(samples.size() > kUncountedSteps, samples.size(), " steps");
  const std::span<const StepSample> counted = samples.subspan(kUncountedSteps);
  const auto middle = [&](double StepSample::*value) {
    std::vector<double> all;
    for (const StepSample& sample : counted) all.push_back(sample.*value);
    return median(std::move(all));
  };
  return {.num_steps = static_cast<int64_t>(counted.size()),
          .step_seconds = middle(&StepSample::seconds),
          .communication_seconds = middle(&StepSample::communication_seconds),
          .peak_bytes = samples.back().peak_bytes};
}

MeasuredSteps read_steps(const std::string& run) {
  const std::filesystem::path path = std::filesystem::path(run) / train::kMetricsName;
  TRIREME_CHECK(std::filesystem::is_regular_file(path), "--measured ", shown(run),
                " has no metrics.jsonl; expected the folder of a run");
  std::vector<StepSample> steps;
  train::for_each_step(run, [&](const train::LoggedStep& step) {
    const double seconds = number_or_0(step, "step_seconds");
    const double on_device = number_or_0(step, "peak_device_bytes");
    if (seconds <= 0) return;
    steps.push_back(
        {.seconds = seconds,
         .communication_seconds = seconds * number_or_0(step, "communication_fraction"),
         .peak_bytes = on_device > 0 ? on_device : number_or_0(step, "peak_rss_bytes")});
  });
  TRIREME_CHECK(steps.size() > kUncountedSteps, "--measured: ", shown(path.string()), " has ",
                steps.size(), " steps; expected more than ", kUncountedSteps);
  return summary_of(steps);
}

std::string compare(const plan::StepPrediction& step, const MeasuredSteps& measured) {
  TextWriter out;
  out << format("measured %.2f ms a step, predicted %.2f (%s); memory %s, predicted %s (%s)\n",
                1e3 * measured.step_seconds, 1e3 * step.step_seconds(),
                in_percent(step.step_seconds(), measured.step_seconds).c_str(),
                human_bytes(measured.peak_bytes).c_str(), human_bytes(step.memory.total()).c_str(),
                in_percent(step.memory.total(), measured.peak_bytes).c_str());
  // The run counts waiting for a pipeline's neighbours as communication.
  const double waits = step.seconds.communication() + step.seconds.bubble;
  const double computes = step.step_seconds() - waits;
  const double by_waiting = waits - measured.communication_seconds;
  const double by_computing = computes - (measured.step_seconds - measured.communication_seconds);
  const bool is_waiting = std::abs(by_waiting) > std::abs(by_computing);
  out << format("most of the difference is %s: predicted %.2f ms, measured %.2f\n",
                is_waiting ? "communication and waiting" : "computation",
                1e3 * (is_waiting ? waits : computes),
                1e3 * (is_waiting ? measured.communication_seconds
                                  : measured.step_seconds - measured.communication_seconds));
  return out.str();
}

nlohmann::json to_json(const MeasuredSteps& measured) {
  return {{"steps", measured.num_steps},
          {"step_seconds", measured.step_seconds},
          {"communication_seconds", measured.communication_seconds},
          {"peak_memory_bytes", measured.peak_bytes}};
}

}  // namespace trireme::cli
