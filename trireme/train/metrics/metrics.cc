#include "trireme/train/metrics/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <span>
#include <sstream>
#include <string_view>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

// Our lines have a few hundred characters, and with lists, such as the tokens of each expert, more.
// A longer one is not ours.
constexpr size_t kLongestLine = size_t{16} << 20;
// A damaged file has a few such lines. One with more is something else, and slow to read.
constexpr size_t kMostUnreadable = 1000;

// The step of a line; empty if the line cannot be read.
std::optional<int64_t> step_of(std::string_view line) {
  if (line.size() > kLongestLine) return std::nullopt;
  try {
    const nlohmann::json value = parse_json(line, "a line");
    return JsonView(value, "a line").at("step").integer(0, std::numeric_limits<int64_t>::max());
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

struct Line {
  std::string_view text;  // it ended with a newline
  bool is_whole = true;   // it had one
  std::optional<int64_t> step{};
};

std::vector<Line> lines_of(std::string_view text, const std::filesystem::path& path) {
  std::vector<Line> lines;
  size_t num_unreadable = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    Line line{.text = text.substr(0, end), .is_whole = end != std::string_view::npos};
    line.step = step_of(line.text);
    if (!line.step) ++num_unreadable;
    TRIREME_CHECK(num_unreadable <= kMostUnreadable, path.string(), ": more than ", kMostUnreadable,
                  " of its lines are not metrics; move it away");
    lines.push_back(line);
    text.remove_prefix(line.is_whole ? end + 1 : text.size());
  }
  return lines;
}

// The lines up to `last_step`. Puts the numbers of unreadable lines into `unreadable`; their step
// counts as the one after the last readable line's.
std::string cut_after(std::span<const Line> lines, int64_t last_step,
                      std::vector<int64_t>& unreadable) {
  std::string kept;
  int64_t number = 0;
  int64_t before = 0;  // step of the last line that could be read
  for (const Line& line : lines) {
    ++number;
    if (!line.step && !line.is_whole) break;  // a kill cut it short
    if (line.step) before = *line.step;
    if (line.step ? before > last_step : before >= last_step) continue;
    if (!line.step) unreadable.push_back(number);
    kept += line.text;
    kept += '\n';
  }
  return kept;
}

// The task's metrics under their names in the file.
std::vector<MetricValue> named_metrics(const StepMetrics& metrics) {
  std::vector<MetricValue> all = metrics.others;
  for (const auto& [name, value] : metrics.validation_others) {
    all.emplace_back("validation_" + name, value);
  }
  return all;
}

std::string seventeen_digits(double value) {
  if (!std::isfinite(value)) return "null";  // JSON has no other way to write it
  char digits[32];
  std::snprintf(digits, sizeof(digits), "%.17g", value);
  return digits;
}

std::string number_or_null(std::optional<double> value) {
  std::ostringstream out;
  if (value) out << *value;
  return value ? out.str() : "null";
}

}  // namespace

std::string to_json(const StepMetrics& metrics) {
  std::ostringstream out;
  out << "{\"step\": " << metrics.step << ", \"loss\": " << seventeen_digits(metrics.loss)
      << ", \"grad_norm\": " << seventeen_digits(metrics.grad_norm)
      << ", \"learning_rate\": " << metrics.learning_rate << ", \"" << metrics.unit
      << "_per_second\": " << metrics.units_per_second
      << ", \"step_seconds\": " << metrics.step_seconds
      << ", \"data_seconds\": " << metrics.data_seconds
      << ", \"communication_fraction\": " << number_or_null(metrics.communication_fraction)
      << ", \"peak_rss_bytes\": " << metrics.peak_rss_bytes
      << ", \"gradient_bytes\": " << metrics.gradient_bytes;
  if (metrics.peak_device_bytes) {
    out << ", \"peak_device_bytes\": " << *metrics.peak_device_bytes;
  }
  if (metrics.mfu) out << ", \"mfu\": " << *metrics.mfu;
  if (metrics.skipped) out << ", \"skipped\": true";
  if (metrics.bad_samples) out << ", \"bad_samples\": " << *metrics.bad_samples;
  if (metrics.validation_loss) {
    out << ", \"validation_loss\": " << seventeen_digits(*metrics.validation_loss);
  }
  for (const auto& [name, value] : named_metrics(metrics)) {
    out << ", \"" << name << "\": " << seventeen_digits(value);
  }
  for (const auto& [name, values] : metrics.lists) {
    out << ", \"" << name << "\": [";
    for (size_t i = 0; i < values.size(); ++i) {
      out << (i == 0 ? "" : ", ") << seventeen_digits(values[i]);
    }
    out << "]";
  }
  if (metrics.noise_scale) out << ", \"noise_scale\": " << *metrics.noise_scale;
  out << "}";
  return out.str();
}

std::vector<std::string> undefined_metrics(const StepMetrics& metrics) {
  std::vector<std::string> names;
  for (const auto& [name, value] : named_metrics(metrics)) {
    if (!std::isfinite(value)) names.push_back(name);
  }
  return names;
}

int64_t last_step_in(const std::filesystem::path& path) {
  int64_t last = 0;
  if (!std::filesystem::exists(path)) return last;
  const std::string text = read_file(path, MappedFile::kAnySize);  // a line per step, however many
  for (const Line& line : lines_of(text, path)) last = std::max(last, line.step.value_or(0));
  return last;
}

MetricsWriter::MetricsWriter(const std::filesystem::path& folder, int64_t last_step)
    : path_(folder / kMetricsName), events_(folder / "tensorboard") {
  if (std::filesystem::exists(path_)) {
    const std::string text = read_file(path_, MappedFile::kAnySize);
    const std::string kept = cut_after(lines_of(text, path_), last_step, unreadable_);
    if (kept != text) write_file_atomically(path_, kept);
  }
  open();
}

void MetricsWriter::open() {
  file_.emplace(path_, /*append=*/true);
  identity_ = identity_of(path_);
  folder_identity_ = identity_of(path_.parent_path());
  sync_folder(path_.parent_path());
}

bool MetricsWriter::write(const StepMetrics& metrics) {
  const bool is_in_place =
      identity_of(path_) == identity_ || identity_of(path_.parent_path()) != folder_identity_;
  if (!is_in_place) open();
  file_->write(to_json(metrics) + "\n");
  std::vector<Scalar> scalars = {{"loss", metrics.loss},
                                 {"grad_norm", metrics.grad_norm},
                                 {"learning_rate", metrics.learning_rate},
                                 {metrics.unit + "_per_second", metrics.units_per_second}};
  if (metrics.communication_fraction) {
    scalars.push_back({"communication_fraction", *metrics.communication_fraction});
  }
  if (metrics.mfu) scalars.push_back({"mfu", *metrics.mfu});
  if (metrics.validation_loss) scalars.push_back({"validation_loss", *metrics.validation_loss});
  for (const auto& [name, value] : named_metrics(metrics)) scalars.push_back({name, value});
  for (const auto& [name, values] : metrics.lists) {
    for (size_t i = 0; i < values.size(); ++i) scalars.push_back({concat(name, "/", i), values[i]});
  }
  if (metrics.noise_scale) scalars.push_back({"noise_scale", *metrics.noise_scale});
  if (metrics.bad_samples) {
    scalars.push_back({"bad_samples", static_cast<double>(*metrics.bad_samples)});
  }
  std::erase_if(scalars, [](const Scalar& scalar) { return !std::isfinite(scalar.value); });
  events_.write(metrics.step, scalars);
  return is_in_place;
}

void MetricsWriter::write(int64_t step, std::span<const NamedHistogram> histograms) {
  events_.write(step, histograms);
}

void MetricsWriter::sync() { file_->sync(); }

}  // namespace trireme::train
