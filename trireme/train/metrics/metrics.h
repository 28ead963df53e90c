// A run's metrics: one JSON object per step in metrics.jsonl, and the same as TensorBoard scalars.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file/file.h"
#include "trireme/train/metrics/metric_table.h"
#include "trireme/train/metrics/tensorboard_events.h"

namespace trireme::train {

// One line of JSON without the newline, as metric_table.h says. Numbers that are not finite are
// null, as in a skipped step, or where a metric is undefined. The metrics of tasks and callbacks
// have 17 digits.
std::string to_json(const StepMetrics& metrics);

// The names in the line of the task's and callbacks' metrics that are not finite.
std::vector<std::string> undefined_metrics(const StepMetrics& metrics);

inline constexpr const char* kMetricsName = "metrics.jsonl";

// The lines in the text of a metrics.jsonl that count. A rank that was paused while a later epoch
// began may add lines of its own epoch before it is ended. So of each step only lines of its
// highest epoch count, and none of an earlier epoch after the last step of the highest one. Lines
// without a step are left out.
std::vector<std::string_view> counted_lines(std::string_view text);

// The largest step that counts in the file at `path`, and the highest epoch there; 0 without a
// file.
// Throws: Error when it exists and cannot be read
int64_t last_step_in(const std::filesystem::path& path);
int64_t newest_epoch_in(const std::filesystem::path& path);

// Not thread safe.
class MetricsWriter {
 public:
  // Opens folder/metrics.jsonl and folder/tensorboard/. Drops every line past `last_step`, because
  // a run that resumes there will write it again, lines of a step that a later epoch has written
  // too, and an incomplete last line left by a kill. Keeps unreadable lines in the middle. For
  // TensorBoard, too, no step past `last_step` counts that was written before.
  // Throws: Error when the folder cannot be written
  MetricsWriter(const std::filesystem::path& folder, int64_t last_step);

  // Numbers, from 1, of the unreadable lines that were kept.
  const std::vector<int64_t>& unreadable_lines() const { return unreadable_; }

  // The line is in the file when the call returns. Returns false if the file had been removed or
  // replaced; the line is then in the file that is there now, or in a new one. If the folder itself
  // is gone, the line goes to the open file, wherever it is. TensorBoard gets what is finite.
  bool write(const StepMetrics& metrics);

  // For TensorBoard.
  void write(int64_t step, std::span<const NamedHistogram> histograms);
  void write(int64_t step, std::span<const Scalar> scalars);

  // Brings all lines to the disk.
  void sync();

 private:
  void open();

  std::filesystem::path path_;
  std::vector<int64_t> unreadable_;
  std::optional<OutputFile> file_;
  std::optional<FileIdentity> identity_;  // of file_
  std::optional<FileIdentity> folder_identity_;
  EventFile events_;
};

}  // namespace trireme::train
