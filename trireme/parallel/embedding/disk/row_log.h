// The newest image of each row, in an unnamed file that is gone with the process. Images that leave
// the memory are appended to segments, so writes are large wherever the rows are in the table. The
// location of each row's newest image is kept in memory. Segments with the most outdated images are
// emptied and used again.
// Source: Rosenblum & Ousterhout 1992, "The design and implementation of a log-structured file
//         system", section 3
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/base/io/async_io.h"
#include "trireme/base/io/scratch_file.h"

namespace trireme::parallel {

struct RowLogOptions {
  std::string table;  // its name, for errors
  std::filesystem::path folder;
  int64_t num_rows = 0;
  int64_t image_bytes = 0;
  int64_t buffer_bytes = 0;  // for reads under way, twice; at least a segment and a block
  bool grows = false;        // by far: segments are as large as those of large tables
};

// Not thread safe.
class RowLog {
 public:
  // The file has room for a quarter more than all rows, and is allocated now.
  // Memory: 4 bytes per row, the buffers, and four segments of at most 256 KiB (more if a row has
  //         more than 32 KiB)
  // Throws: ConfigError when the folder cannot be written or has too little room, and for more
  //         rows than 32 bits can number
  explicit RowLog(const RowLogOptions& options);

  // If `num_rows` has grown, makes room for the new rows, which have no image yet.
  // Throws: ConfigError as the constructor
  void grow(int64_t num_rows);

  bool has(int64_t row) const { return positions_[static_cast<size_t>(row)] != kNowhere; }
  // Throws: Error when the disk fails; so do the functions below
  void append(int64_t row, std::span<const std::byte> image);
  // The log has the row no more.
  void erase(int64_t row);
  void clear();
  // Calls use(i, image) once for each i, in any order. The log has all rows[i].
  using Use = std::function<void(size_t i, const std::byte* image)>;
  void read(std::span<const int64_t> rows, const Use& use);
  // Begins to read rows, all of which are in the log, as far as buffers allow. The next read()
  // takes them from the buffers.
  void prefetch(std::span<const int64_t> rows);

 private:
  static constexpr uint32_t kNowhere = ~uint32_t{0};
  static constexpr size_t kNumBuffers = 4;
  // A segment that is filled, or on its way to the file.
  struct Buffer {
    AlignedBytes data{};
    int64_t segment = -1;
    int64_t num_records = 0;
    std::optional<AsyncIo::Ticket> ticket{};
  };
  // Reads under way.
  struct Reads {
    AlignedBytes data{};
    int64_t used_bytes = 0;
    std::vector<AsyncIo::Ticket> tickets{};
  };

  static AlignedBytes allocate(int64_t num_bytes);
  int64_t segments_for(int64_t num_rows) const;
  void add_segments(int64_t num_segments);
  int64_t segment_of(uint32_t position) const { return position / records_; }
  uint64_t offset_of(uint32_t position) const;
  Buffer* buffer_of(int64_t segment);
  // Null when the image is only in the file.
  const std::byte* image_in_memory(int64_t row);
  void wait(Buffer& buffer);
  void wait(Reads& reads);
  void put(int64_t row, std::span<const std::byte> image);
  void open_segment();
  void empty_one_segment();
  // Begins to read rows[first], rows[first + 1] and so on, as far as there is room. Calls found()
  // with the place in `rows` and the place in memory of each. Returns the first one without room.
  size_t start(Reads& reads, std::span<const int64_t> rows, size_t first, const Use& found);

  std::string table_;
  int64_t record_bytes_;  // the row's number and its image
  int64_t segment_bytes_;
  uint32_t records_;                 // per segment
  std::vector<uint32_t> positions_;  // [rows] of the newest image, counted in records
  std::vector<uint32_t> num_live_;   // [segments] newest images in it
  std::vector<bool> is_closed_;      // [segments] it is full, and not free
  std::vector<int64_t> free_;        // segments
  std::array<Buffer, kNumBuffers> buffers_{};
  size_t filling_ = 0;  // the buffer that append() fills

  int64_t buffer_bytes_;
  Reads reads_, prefetch_;
  std::unordered_map<int64_t, const std::byte*> prefetched_;  // there once prefetch_ is done
  bool has_read_ = false;                                     // since the last prefetch()
  std::optional<ScratchFile> file_;
  std::unique_ptr<AsyncIo> io_;  // destroyed first: the kernel may still use the memory
};

}  // namespace trireme::parallel
