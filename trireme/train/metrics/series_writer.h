// Writes RUN/series/ranks.trs (docs/design/series-format.md), on rank 0. Its memory and its file
// are bounded, and a failed disk costs lines of the series, never the run.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/file/file.h"
#include "trireme/train/metrics/rank_series.h"

namespace trireme::train {

inline constexpr int64_t kFullSteps = 4096;  // at least so many of the newest stay as they are

struct SeriesOptions {
  std::filesystem::path run_folder;
  int64_t last_step = 0;  // drops what is past it: the run writes it again
  int64_t epoch = 0;
  // A step is in the file at latest so long after it has ended, and another has.
  std::chrono::milliseconds patience{2000};
  // Of the file, which may grow by an eighth more until its oldest blocks go.
  uint64_t most_bytes = uint64_t{1} << 30;
};

// Not thread safe. Never throws.
class SeriesWriter {
 public:
  // Opens the file, in place of the one that is there, with what still counts of it. A writer of an
  // earlier epoch that is still there writes into a file without a name from then on.
  explicit SeriesWriter(SeriesOptions options);
  // Flushes.
  ~SeriesWriter();
  SeriesWriter(const SeriesWriter&) = delete;
  SeriesWriter& operator=(const SeriesWriter&) = delete;

  // values: [ranks, columns] of shape. A step that is not past the last one is left out, as are
  // steps whose rows are larger than kMostRowBytes.
  void add(int64_t step, const SeriesShape& shape, std::span<const float> values);
  void add(std::vector<WaitRecord> waits);
  // Everything is in the file afterwards, except on failure.
  void flush();

  // What has gone wrong for the first time: "cannot write PATH: No space left on device".
  std::optional<std::string> take_problem();

 private:
  void compact(int64_t last_step);
  void open();
  bool is_in_place();
  bool is_due() const;
  bool rests();
  void write(const std::string& bytes);
  template <typename Work>
  void attempt(const Work& work);

  SeriesOptions options_;
  std::filesystem::path path_;
  std::optional<OutputFile> file_;
  std::optional<FileIdentity> identity_;  // of file_
  std::optional<FileIdentity> run_identity_;
  uint64_t num_bytes_ = 0;
  uint64_t compacted_bytes_ = 0;  // num_bytes_ after the last compact()
  int num_failures_ = 0;          // of compact() since it succeeded
  int num_rests_ = 0;             // since the last of them
  bool is_over_ = false;          // another run's file is at the place
  bool has_failed_ = false;
  std::optional<std::string> problem_;
  SeriesBlock open_block_;  // not yet in the file
  std::vector<WaitRecord> waits_;
  int64_t last_step_ = 0;
  int64_t first_full_step_ = 0;                  // in the file; 0: none
  std::chrono::steady_clock::time_point begun_;  // of open_block_
};

}  // namespace trireme::train
