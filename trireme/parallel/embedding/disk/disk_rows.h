// Rows of a table in a file, of which those that are used most are in slots in memory. The file has
// no name and is gone with the process. A row that was never changed takes no reading: it has its
// initial value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/io/scratch_file.h"
#include "trireme/parallel/embedding/disk/row_cache.h"

namespace trireme::parallel::inline internal {

// A row as bytes: its weights and all that its optimizer keeps.
struct RowImage {
  int64_t num_bytes = 0;
  std::function<void(int64_t slot, std::byte* image)> save;
  std::function<void(int64_t slot, const std::byte* image)> load;
  // Of a row that was never changed.
  std::function<void(int64_t row, std::byte* image)> initial;
};

struct DiskRowsOptions {
  std::string table;  // its name, for errors
  int64_t num_rows = 0;
  int64_t num_slots = 0;
  std::filesystem::path folder;
};

// Not thread safe, but for mark_changed() of different slots.
class DiskRows {
 public:
  // Memory: num_slots times what is in a slot and some 60 bytes; a bit per row
  // Throws: ConfigError when the folder cannot be written or has too little room for all rows
  DiskRows(const DiskRowsOptions& options, RowImage image);

  // Appends the slots of `rows` to `slots`. The rows stay there until release(). rows: ascending
  // Throws: ConfigError when more rows are wanted at once than there are slots; Error when the disk
  //         fails
  void fetch(std::span<const int64_t> rows, std::vector<int64_t>& slots);
  void release() { cache_.unpin(); }
  // What is in the slot has changed. Any thread.
  void mark_changed(int64_t slot) { changed_[static_cast<size_t>(slot)] = 1; }
  // Tells the system which rows fetch() will want, so that it reads them meanwhile.
  void prefetch(std::span<const int64_t> rows);

  // One row, wherever it is, without a use.
  void read(int64_t row, std::byte* image);
  void write(int64_t row, const std::byte* image);

  // Whether the row may have other values than its first ones.
  bool was_changed(int64_t row) const;

  // Of fetch() so far.
  int64_t num_found() const { return num_found_; }
  int64_t num_missed() const { return num_missed_; }

 private:
  uint64_t offset_of(int64_t row) const;
  void evict(int64_t row, int64_t slot);
  void load_missing(std::span<const int64_t> rows, std::span<const int64_t> slots);
  void transfer(IoKind kind, int64_t first_row, int64_t num_rows, std::byte* data);

  DiskRowsOptions options_;
  RowImage image_;
  ScratchFile file_;
  RowCache cache_;
  std::vector<uint8_t> changed_;   // [slots]
  std::vector<bool> is_written_;   // [rows] whether the file has the row
  std::vector<std::byte> buffer_;  // of a few rows
  int64_t num_found_ = 0, num_missed_ = 0;
};

}  // namespace trireme::parallel::inline internal
