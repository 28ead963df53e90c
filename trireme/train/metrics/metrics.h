// What a run says of itself, one JSON object a step: metrics.jsonl, and the same as TensorBoard
// scalars.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/file/file.h"
#include "trireme/base/file/file_identity.h"
#include "trireme/train/metrics/event_file.h"

namespace trireme::train {

struct StepMetrics {
  int64_t step = 0;      // from 1
  double loss = 0;       // mean cross-entropy over the step's tokens, in nats
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  double tokens_per_second = 0;  // all ranks
  double step_seconds = 0;
  double communication_fraction = 0;  // of the step, the largest of the ranks
  int64_t peak_rss_bytes = 0;         // the largest of the ranks
  int64_t gradient_bytes = 0;         // on the wire, of rank 0's gradients
  bool skipped = false;               // the weights stayed as they were
  std::optional<double> validation_loss = std::nullopt;
  // The gradient noise scale, in sequences: about how large a batch still pays.
  std::optional<double> noise_scale = std::nullopt;
};

// One line of JSON without the newline. loss, grad_norm and validation_loss have 17 digits: equal
// bits read equal; null when they are no number, which only a skipped step survives.
std::string to_json(const StepMetrics& metrics);

inline constexpr const char* kMetricsName = "metrics.jsonl";

// The largest step in the file at `path`; 0 without one.
// Throws: Error when it is there and cannot be read
int64_t last_step_in(const std::filesystem::path& path);

// Not thread safe.
class MetricsWriter {
 public:
  // Opens folder/metrics.jsonl and folder/tensorboard/; drops every line past `last_step`, which a
  // run resumed from there will write again, and what a kill left of a last line. A line in the
  // middle that cannot be read stays where it is.
  // Throws: Error when the folder cannot be written
  MetricsWriter(const std::filesystem::path& folder, int64_t last_step);

  // Numbers, from 1, of the lines that could not be read and stay.
  const std::vector<int64_t>& unreadable_lines() const { return unreadable_; }

  // The line is in the file when the call returns. false: the file had been removed or replaced in
  // its folder, and the line went to what is at its place now, or to a new one. A file whose folder
  // is gone has the line, wherever it is.
  bool write(const StepMetrics& metrics);

  // All lines are on the disk afterwards.
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
