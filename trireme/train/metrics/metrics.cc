#include "trireme/train/metrics/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"

namespace trireme::train {
namespace {

// Our lines have a few hundred characters, and with lists, such as the tokens of each expert, more.
// A longer one is not ours.
constexpr size_t kLongestLine = size_t{16} << 20;
// A damaged file has a few such lines. One with more is something else, and slow to read.
constexpr size_t kMostUnreadable = 1000;

struct Line {
  std::string_view text;          // it ended with a newline
  bool is_whole = true;           // it had one
  std::optional<int64_t> step{};  // empty if it cannot be read
  int64_t epoch = 0;
};

void read_step(Line& line) {
  if (line.text.size() > kLongestLine) return;
  try {
    const std::string source = "a line";
    const nlohmann::json value = parse_json(line.text, source);
    const JsonView view(value, source);
    const int64_t step = view.at("step").integer(0);
    if (const auto epoch = view.find("epoch")) line.epoch = epoch->integer(0);
    line.step = step;
  } catch (const ConfigError&) {
  }
}

std::vector<Line> lines_of(std::string_view text, const std::filesystem::path& path) {
  std::vector<Line> lines;
  size_t num_unreadable = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    Line line{.text = text.substr(0, end), .is_whole = end != std::string_view::npos};
    read_step(line);
    if (!line.step) ++num_unreadable;
    TRIREME_CHECK(num_unreadable <= kMostUnreadable, path.string(), ": more than ", kMostUnreadable,
                  " of its lines are not metrics; move it away");
    lines.push_back(line);
    text.remove_prefix(line.is_whole ? end + 1 : text.size());
  }
  return lines;
}

// Which lines' steps a later epoch has written too.
class Epochs {
 public:
  explicit Epochs(std::span<const Line> lines) {
    for (const Line& line : lines) {
      if (!line.step) continue;
      if (line.epoch > newest_) last_step_ = *line.step;
      newest_ = std::max(newest_, line.epoch);
      if (line.epoch == newest_) last_step_ = std::max(last_step_, *line.step);
    }
    if (newest_ == 0) return;  // as in a run without an agent
    for (const Line& line : lines) {
      if (line.step) by_step_[*line.step] = std::max(by_step_[*line.step], line.epoch);
    }
  }
  int64_t newest() const { return newest_; }
  bool is_overtaken(const Line& line) const {
    return newest_ > 0 && line.step && line.epoch < by_step_.at(*line.step);
  }
  bool counts(const Line& line) const {
    return line.step && !is_overtaken(line) && (*line.step <= last_step_ || line.epoch == newest_);
  }

 private:
  std::unordered_map<int64_t, int64_t> by_step_;
  int64_t newest_ = 0;
  int64_t last_step_ = 0;  // of the newest epoch
};

// The lines up to `last_step`. Puts the numbers of unreadable lines into `unreadable`; their step
// counts as the one after the last readable line's.
std::string cut_after(std::span<const Line> lines, int64_t last_step,
                      std::vector<int64_t>& unreadable) {
  std::string kept;
  int64_t number = 0;
  int64_t before = 0;  // step of the last line that could be read
  const Epochs epochs(lines);
  for (const Line& line : lines) {
    ++number;
    if (epochs.is_overtaken(line)) continue;
    if (!line.step && !line.is_whole) break;  // a kill cut it short
    if (line.step) before = *line.step;
    if (line.step ? before > last_step : before >= last_step) continue;
    if (!line.step) unreadable.push_back(number);
    kept += line.text;
    kept += '\n';
  }
  return kept;
}

void add_field(std::string& line, std::string_view name, std::string_view value) {
  line += concat(line.empty() ? "{" : ", ", '"', name, "\": ", value);
}

void add_others(std::string& line, const StepMetrics& metrics) {
  for (const auto& [name, value] : other_metrics(metrics)) {
    add_field(line, name, text_of(MetricKind::Text::kSameBits, value));
  }
  for (const auto& [name, values] : metrics.lists) {
    std::string list;
    for (const double value : values)
      list += (list.empty() ? "" : ", ") + text_of(MetricKind::Text::kSameBits, value);
    add_field(line, name, "[" + list + "]");
  }
}

}  // namespace

std::string to_json(const StepMetrics& metrics) {
  std::string line;
  for (const MetricKind& kind : metric_kinds()) {
    if (const auto value = value_of(kind, metrics)) {
      add_field(line, name_of(kind, metrics), text_of(kind.text, *value));
    } else if (kind.absent == MetricKind::Absent::kNull) {
      add_field(line, name_of(kind, metrics), "null");
    }
    if (kind.name == kBeforeOthers) add_others(line, metrics);
  }
  return line + "}";
}

std::vector<std::string> undefined_metrics(const StepMetrics& metrics) {
  std::vector<std::string> names;
  for (const auto& [name, value] : other_metrics(metrics)) {
    if (!std::isfinite(value)) names.push_back(name);
  }
  return names;
}

std::vector<std::string_view> counted_lines(std::string_view text) {
  const std::vector<Line> lines = lines_of(text, kMetricsName);
  const Epochs epochs(lines);
  std::vector<std::string_view> counted;
  for (const Line& line : lines) {
    if (epochs.counts(line)) counted.push_back(line.text);
  }
  return counted;
}

int64_t last_step_in(const std::filesystem::path& path) {
  int64_t last = 0;
  if (!std::filesystem::exists(path)) return last;
  const std::string text = read_file(path, MappedFile::kAnySize);  // a line per step, however many
  const std::vector<Line> lines = lines_of(text, path);
  const Epochs epochs(lines);
  for (const Line& line : lines) {
    if (epochs.counts(line)) last = std::max(last, *line.step);
  }
  return last;
}

int64_t newest_epoch_in(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return 0;
  const std::string text = read_file(path, MappedFile::kAnySize);
  return Epochs(lines_of(text, path)).newest();
}

MetricsWriter::MetricsWriter(const std::filesystem::path& folder, int64_t last_step)
    : path_(folder / kMetricsName), events_(folder / "tensorboard", last_step + 1) {
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
  std::vector<Scalar> scalars;
  for (const MetricKind& kind : metric_kinds()) {
    const auto value = kind.is_charted ? value_of(kind, metrics) : std::nullopt;
    if (value) scalars.push_back({name_of(kind, metrics), *value});
  }
  for (const auto& [name, value] : other_metrics(metrics)) scalars.push_back({name, value});
  for (const auto& [name, values] : metrics.lists) {
    for (size_t i = 0; i < values.size(); ++i) scalars.push_back({concat(name, "/", i), values[i]});
  }
  write(metrics.step, scalars);
  return is_in_place;
}

void MetricsWriter::write(int64_t step, std::span<const Scalar> scalars) {
  std::vector<Scalar> finite(scalars.begin(), scalars.end());
  std::erase_if(finite, [](const Scalar& scalar) { return !std::isfinite(scalar.value); });
  if (!finite.empty()) events_.write(step, finite);
}

void MetricsWriter::write(int64_t step, std::span<const NamedHistogram> histograms) {
  events_.write(step, histograms);
}

void MetricsWriter::sync() { file_->sync(); }

}  // namespace trireme::train
