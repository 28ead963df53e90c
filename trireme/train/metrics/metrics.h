// A run's metrics: one JSON object per step in metrics.jsonl, and the same as TensorBoard scalars.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/file/file.h"
#include "trireme/base/file/file_identity.h"
#include "trireme/train/metrics/event_file.h"

namespace trireme::train {

// A task's metric and its value.
using MetricValue = std::pair<std::string, double>;
using NamedNumbers = std::pair<std::string, std::vector<double>>;

struct StepMetrics {
  int64_t step = 0;      // from 1
  double loss = 0;       // mean over the step's terms, such as cross-entropy per token in nats
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  // What all ranks together process, as "<unit>_per_second".
  std::string unit = "tokens";
  double units_per_second = 0;
  double step_seconds = 0;
  double data_seconds = 0;  // of it, waiting for samples; the slowest rank's
  // Share of the step, the largest of the ranks. Empty on GPUs, whose host does not wait for it.
  std::optional<double> communication_fraction = 0;
  int64_t peak_rss_bytes = 0;  // the largest of the ranks
  // The same for tensors on their devices.
  std::optional<int64_t> peak_device_bytes = std::nullopt;
  // Model FLOPs utilisation: the share of all devices' peak that the model's matrix products take.
  // Source: Chowdhery et al. 2022, arXiv:2204.02311, appendix B
  std::optional<double> mfu = std::nullopt;
  int64_t gradient_bytes = 0;  // that rank 0's gradients put on the wire
  bool skipped = false;        // the weights did not change
  // Of the run so far, those that could not be read and were replaced.
  std::optional<int64_t> bad_samples = std::nullopt;
  std::vector<MetricValue> others{};  // the task's own, over the step's samples
  std::vector<NamedNumbers> lists{};  // such as the tokens of each expert
  std::vector<double> counts{};       // of Task::num_counts(), for callbacks; not written
  std::optional<double> validation_loss = std::nullopt;
  std::vector<MetricValue> validation_others{};  // when there is a validation_loss
  // The gradient noise scale in samples: roughly the largest batch that still pays.
  std::optional<double> noise_scale = std::nullopt;
};

// One line of JSON without the newline. Losses, grad_norm and the task's metrics have 17 digits, so
// they are read back with the same bits. They are null if not finite: in a skipped step, and where
// a metric is undefined.
std::string to_json(const StepMetrics& metrics);

// The names in the line of the task's and callbacks' metrics that are not finite.
std::vector<std::string> undefined_metrics(const StepMetrics& metrics);

inline constexpr const char* kMetricsName = "metrics.jsonl";

// The largest step in the file at `path`; 0 without a file.
// Throws: Error when it exists and cannot be read
int64_t last_step_in(const std::filesystem::path& path);

// Not thread safe.
class MetricsWriter {
 public:
  // Opens folder/metrics.jsonl and folder/tensorboard/. Drops every line past `last_step`, because
  // a run that resumes there will write it again, and an incomplete last line left by a kill. Keeps
  // unreadable lines in the middle.
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
