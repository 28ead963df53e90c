// Tracks the rows of a table that were updated since a moment, for checkpoints that save only
// those.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace trireme::parallel {

// Remembers a byte per row. Thread safety: touch() of different rows may run at once; nothing else
// may run beside another function.
class TouchedRows {
 public:
  explicit TouchedRows(int64_t num_rows) : stamps_(static_cast<size_t>(num_rows), 0) {}

  void touch(std::span<const int64_t> rows);

  // Remembers this moment and returns its mark. Marks grow; it is the last one again if no row was
  // touched since. After 255 moments with changes between them all earlier ones are forgotten.
  int64_t mark();
  // The rows touched since that moment, ascending; nothing if it was forgotten.
  std::optional<std::vector<int64_t>> since(int64_t mark) const;
  // After other changes than touch() tells of, such as a load: forgets all moments.
  void forget();

 private:
  std::vector<uint8_t> stamps_;  // when each row was last touched; 0: before all moments
  uint8_t now_ = 1;
  int64_t first_mark_ = 0;                // the moment after which stamps begin with 1
  std::atomic<bool> is_touched_ = false;  // since the last mark
};

}  // namespace trireme::parallel
