// TensorBoard event files: length-delimited, checksummed protocol-buffer records.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "trireme/base/file/file.h"
#include "trireme/train/metrics/histogram.h"

namespace trireme::train {

struct Scalar {
  std::string tag;
  double value = 0;
};

class EventFile {
 public:
  // Makes `folder`, and in it a new events.out.tfevents.<time>.<pid>, which readers take after all
  // files that are there, whatever this host's clock says. What those have from `first_step` on no
  // longer counts, and neither does what a writer that was paused still adds to them.
  explicit EventFile(const std::filesystem::path& folder, int64_t first_step = 1);

  void write(int64_t step, std::span<const Scalar> scalars);
  // Those without any value are left out. One with values that are not finite also gets the scalar
  // "<tag>/nonfinite", the number of them.
  void write(int64_t step, std::span<const NamedHistogram> histograms);

 private:
  // uint64 length, its masked CRC, the record, its masked CRC; little-endian.
  void write_record(const std::string& record);

  OutputFile file_;
};

// events.out.tfevents.<seconds>.<nanoseconds>.<pid>. TensorBoard reads a folder's files in the
// order of their names, and these are in the order of time, also within a second.
std::string event_file_name(std::chrono::nanoseconds since_epoch);

// CRC-32C (Castagnoli) of `data`: 0xE3069283 for "123456789".
uint32_t crc32c(std::string_view data);

}  // namespace trireme::train
