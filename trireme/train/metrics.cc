#include "trireme/train/metrics.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <sstream>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

// The step that a line of metrics.jsonl tells of; the largest number where it is none.
int64_t step_of(const std::string& line, const std::filesystem::path& path) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  const std::string source = path.string();
  try {
    const nlohmann::json value = parse_json(line, source);
    return JsonView(value, source).at("step").integer(0, kLargest);
  } catch (const ConfigError&) {
    return kLargest;
  }
}

// metrics.jsonl with the steps up to `last_step` alone. A line that a kill cut short goes too.
std::filesystem::path cut_after(const std::filesystem::path& path, int64_t last_step) {
  if (!std::filesystem::exists(path)) return path;
  std::istringstream lines(read_file(path));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    if (step_of(line, path) > last_step) break;
    kept += line + "\n";
  }
  write_file_atomically(path, kept);
  return path;
}

std::string seventeen_digits(double value) {
  if (!std::isfinite(value)) return "null";  // JSON has no other word for it
  char digits[32];
  std::snprintf(digits, sizeof(digits), "%.17g", value);
  return digits;
}

}  // namespace

std::string to_json(const StepMetrics& metrics) {
  std::ostringstream out;
  out << "{\"step\": " << metrics.step << ", \"loss\": " << seventeen_digits(metrics.loss)
      << ", \"grad_norm\": " << seventeen_digits(metrics.grad_norm)
      << ", \"learning_rate\": " << metrics.learning_rate
      << ", \"tokens_per_second\": " << metrics.tokens_per_second
      << ", \"step_seconds\": " << metrics.step_seconds
      << ", \"communication_fraction\": " << metrics.communication_fraction
      << ", \"peak_rss_bytes\": " << metrics.peak_rss_bytes
      << ", \"gradient_bytes\": " << metrics.gradient_bytes;
  if (metrics.skipped) out << ", \"skipped\": true";
  if (metrics.validation_loss) {
    out << ", \"validation_loss\": " << seventeen_digits(*metrics.validation_loss);
  }
  if (metrics.noise_scale) out << ", \"noise_scale\": " << *metrics.noise_scale;
  out << "}";
  return out.str();
}

MetricsWriter::MetricsWriter(const std::filesystem::path& folder, int64_t last_step)
    : file_(cut_after(folder / "metrics.jsonl", last_step), /*append=*/true),
      events_(folder / "tensorboard") {}

void MetricsWriter::write(const StepMetrics& metrics) {
  file_.write(to_json(metrics) + "\n");
  std::vector<Scalar> scalars = {{"loss", metrics.loss},
                                 {"grad_norm", metrics.grad_norm},
                                 {"learning_rate", metrics.learning_rate},
                                 {"tokens_per_second", metrics.tokens_per_second},
                                 {"communication_fraction", metrics.communication_fraction}};
  if (metrics.validation_loss) scalars.push_back({"validation_loss", *metrics.validation_loss});
  if (metrics.noise_scale) scalars.push_back({"noise_scale", *metrics.noise_scale});
  events_.write(metrics.step, scalars);
}

}  // namespace trireme::train
