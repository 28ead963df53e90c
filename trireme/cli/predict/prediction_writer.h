// Writes the answers of `predict` as rows: JSON lines or CSV, to standard output or to a file that
// appears when it is complete.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/choice.h"
#include "trireme/base/file/atomic_file.h"
#include "trireme/dataset/rows/row_source.h"
#include "trireme/train/task/predictor.h"

namespace trireme::cli {

enum class PredictionFormat { kJsonLines, kCsv };
inline constexpr Choice<PredictionFormat> kPredictionFormats[] = {
    {"json-lines", PredictionFormat::kJsonLines}, {"csv", PredictionFormat::kCsv}};

// A row and its answer, as a line with its end. JSON: {"path", "row" unless the file is one row,
// "class" and "probability" of the first class, "top" with all of them when there are several, and
// the numbers by name}. CSV: path, row, class, probability, class_2, probability_2, ..., numbers.
std::string prediction_line(const dataset::Row& row, const train::Answer& answer,
                            PredictionFormat format);
// The names of the columns of answers like this one.
std::string csv_header(const train::Answer& answer);

// Not thread safe.
class PredictionWriter {
 public:
  // path: a file; "": standard output
  // Throws: Error when the file cannot be written
  PredictionWriter(const std::string& path, PredictionFormat format);

  // The row's sample is not read.
  // Throws: Error when the disk is full or nobody reads the output
  void write(const dataset::Row& row, const train::Answer& answer);
  // The file appears. Without it nothing stays of one.
  void finish();

  int64_t num_rows() const { return num_rows_; }

 private:
  void flush();

  PredictionFormat format_;
  std::optional<AtomicFile> file_;  // empty: standard output
  std::string text_;                // not written yet
  int64_t num_rows_ = 0;
};

}  // namespace trireme::cli
