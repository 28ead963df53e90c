// Rows of a table on disk, and their images as tensors for checkpoints. The most used rows are in
// slots in memory. A row that was never changed is not read: it has its initial value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/embedding/disk/row_cache.h"
#include "trireme/parallel/embedding/disk/row_log.h"
#include "trireme/parallel/embedding/rows/stored_rows.h"

namespace trireme::parallel {

// A row as bytes: its weights and all that its optimizer keeps.
struct RowImage {
  int64_t num_bytes = 0;
  std::function<void(int64_t slot, std::byte* image)> save;
  std::function<void(int64_t slot, const std::byte* image)> load;
  // Makes the image of a row that was never changed.
  std::function<void(int64_t row, std::byte* image)> initial;
  // Marks an image as written from outside. May be missing.
  std::function<void(std::byte* image)> loaded{};
};

struct DiskRowsOptions {
  std::string table;  // its name, for errors
  int64_t num_rows = 0;
  int64_t num_slots = 0;
  std::filesystem::path folder;
  bool grows = false;  // by far
};

// Rows may also come and go, with grow() and forget(), if their numbers are used again.
// Not thread safe, but for mark_changed() of different slots.
class DiskRows {
 public:
  // Memory: num_slots times what is in a slot and some 60 bytes; that of RowLog, with buffers of an
  //         eighth of the slots, at most 16 MiB each
  // Throws: ConfigError when the folder cannot be written or has too little room for all rows
  DiskRows(const DiskRowsOptions& options, RowImage image);

  // Appends the slots of `rows` to `slots`. The rows stay there until release(). rows: ascending
  // Throws: ConfigError when more rows are wanted at once than there are slots; Error when the disk
  //         fails
  void fetch(std::span<const int64_t> rows, std::vector<int64_t>& slots);
  // A slot for other use until release(). What is in it then is lost.
  // Throws: as fetch()
  int64_t lend();
  void release() { cache_.unpin(); }

  // Makes room for at least as many rows; new ones were never changed.
  // Throws: ConfigError when the folder has too little room
  void grow(int64_t num_rows);
  // The row becomes one that was never changed, but for what is in its slot, if it has one: the
  // next fetch() may find that there.
  void forget(int64_t row);
  // The same for all rows. No row is in a slot afterwards. Makes room as grow().
  void clear(int64_t num_rows);
  // Marks the row in the slot as changed. Any thread may call it.
  void mark_changed(int64_t slot) { changed_[static_cast<size_t>(slot)] = 1; }
  // Calls change(slots) for those of `rows` that were changed already, as many at a time as there
  // are slots. Releases all before and after.
  void change_again(std::vector<int64_t> rows,
                    const std::function<void(std::span<const int64_t> slots)>& change);
  // Begins to read rows that fetch() will want.
  void prefetch(std::span<const int64_t> rows);

  // Some bytes of every image. Neither of these functions counts as a use.
  struct Part {
    int64_t begin = 0, num_bytes = 0;
  };
  // out: those of each row, one after the other
  void read(std::span<const int64_t> rows, Part part, std::byte* out);
  // values: those of the rows from `begin` on, one after the other. The rest of an image stays, but
  // for what RowImage::loaded does.
  void write(int64_t begin, Part part, std::span<const std::byte> values);

  // Whether the row may have other values than its first ones.
  bool was_changed(int64_t row) const;

  // Hits and misses of fetch() so far.
  int64_t num_found() const { return num_found_; }
  int64_t num_missed() const { return num_missed_; }

 private:
  int64_t place(int64_t row);
  void evict(int64_t row, int64_t slot);
  void load_missing(std::span<const int64_t> rows, std::span<const int64_t> slots);
  // Calls use(i, image) for each rows[i], wherever it is, in any order.
  void for_each(std::span<const int64_t> rows, const RowLog::Use& use);
  size_t image_bytes() const { return static_cast<size_t>(image_.num_bytes); }

  DiskRowsOptions options_;
  RowImage image_;
  RowLog log_;
  RowCache cache_;
  std::vector<uint8_t> changed_;   // [slots]
  std::vector<std::byte> buffer_;  // of a row
  int64_t num_found_ = 0, num_missed_ = 0;
  int64_t num_lent_ = 0;
};

// One of the tensors of a table on a disk, for checkpoints: some bytes of every row's image.
class StoredImages : public StoredRows {
 public:
  // begin:   of the tensor's part in an image
  // row:     the shape and dtype of one row
  // numbers: on the disk, of the rows of the tensor; null: their own
  StoredImages(std::shared_ptr<DiskRows> rows, int64_t begin, const at::Tensor& row,
               std::shared_ptr<const std::vector<int64_t>> numbers = nullptr);

  at::Tensor read(int64_t begin, int64_t end) override;
  at::Tensor read(std::span<const int64_t> rows) override;
  // Only without `numbers`.
  void write(int64_t begin, const at::Tensor& values) override;

 private:
  at::Tensor read_numbers(std::span<const int64_t> numbers);

  std::shared_ptr<DiskRows> rows_;
  DiskRows::Part part_;
  at::Tensor row_;
  std::shared_ptr<const std::vector<int64_t>> numbers_;
};

}  // namespace trireme::parallel
