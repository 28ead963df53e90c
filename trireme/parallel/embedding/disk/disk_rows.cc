#include "trireme/parallel/embedding/disk/disk_rows.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"

namespace trireme::parallel::inline internal {
namespace {

constexpr int64_t kRowsAtOnce = 64;  // of a read of rows that lie together
constexpr int64_t kGap = 4;          // rows between them that are read too

// Calls use(begin, end) for runs of the places in `rows` whose rows lie together.
template <typename Use>
void for_each_run(std::span<const int64_t> rows, const Use& use) {
  size_t begin = 0;
  for (size_t i = 1; i <= rows.size(); ++i) {
    const bool goes_on =
        i < rows.size() && rows[i] - rows[i - 1] <= kGap && rows[i] - rows[begin] < kRowsAtOnce;
    if (goes_on) continue;
    use(begin, i);
    begin = i;
  }
}

}  // namespace

DiskRows::DiskRows(const DiskRowsOptions& options, RowImage image)
    : options_(options),
      image_(std::move(image)),
      file_(options.folder, static_cast<uint64_t>(options.num_rows * image_.num_bytes),
            {.key = "tables.folder",
             .content = concat("the rows of embedding table \"", shown(options.table), "\""),
             .direct = false}),
      cache_(options.num_slots),
      changed_(static_cast<size_t>(options.num_slots)),
      is_written_(static_cast<size_t>(options.num_rows)),
      buffer_(static_cast<size_t>(kRowsAtOnce * image_.num_bytes)) {}

uint64_t DiskRows::offset_of(int64_t row) const {
  return static_cast<uint64_t>(row * image_.num_bytes);
}

void DiskRows::transfer(IoKind kind, int64_t first_row, int64_t num_rows, std::byte* data) {
  const int fd = file_.io().descriptor;
  uint64_t offset = offset_of(first_row);
  const uint64_t end = offset_of(first_row + num_rows);
  while (offset < end) {
    const auto at = static_cast<off_t>(offset);
    const ssize_t moved = kind == IoKind::kRead ? ::pread(fd, data, end - offset, at)
                                                : ::pwrite(fd, data, end - offset, at);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) throw_io_error(file_.io(), kind, offset, moved < 0 ? errno : EIO);
    data += moved;
    offset += static_cast<uint64_t>(moved);
  }
}

void DiskRows::evict(int64_t row, int64_t slot) {
  uint8_t& changed = changed_[static_cast<size_t>(slot)];
  if (std::exchange(changed, 0) == 0) return;
  image_.save(slot, buffer_.data());
  transfer(IoKind::kWrite, row, 1, buffer_.data());
  is_written_[static_cast<size_t>(row)] = true;
}

void DiskRows::fetch(std::span<const int64_t> rows, std::vector<int64_t>& slots) {
  std::vector<int64_t> missing_rows, missing_slots;
  std::vector<size_t> places;
  for (const int64_t row : rows) {
    const int32_t slot = cache_.use(row);
    slots.push_back(slot);
    if (slot != RowCache::kNone) continue;
    missing_rows.push_back(row);
    places.push_back(slots.size() - 1);
  }
  for (size_t i = 0; i < missing_rows.size(); ++i) {
    const RowCache::Placed placed = cache_.place(missing_rows[i]);
    TRIREME_CHECK(placed.slot != RowCache::kNone, "embedding table \"", shown(options_.table),
                  "\": a batch needs more than the ", options_.num_slots,
                  " rows of this rank's part that fit into memory at once; raise tables.memory, or "
                  "lower train.global_batch");
    if (placed.evicted_row >= 0) evict(placed.evicted_row, placed.slot);
    missing_slots.push_back(placed.slot);
    slots[places[i]] = placed.slot;
  }
  load_missing(missing_rows, missing_slots);
  num_missed_ += std::ssize(missing_rows);
  num_found_ += std::ssize(rows) - std::ssize(missing_rows);
}

void DiskRows::load_missing(std::span<const int64_t> rows, std::span<const int64_t> slots) {
  for_each_run(rows, [&](size_t begin, size_t end) {
    const int64_t first = rows[begin], count = rows[end - 1] - first + 1;
    const bool any_written = std::any_of(rows.begin() + static_cast<ptrdiff_t>(begin),
                                         rows.begin() + static_cast<ptrdiff_t>(end),
                                         [&](int64_t row) { return is_written_[row]; });
    if (any_written) transfer(IoKind::kRead, first, count, buffer_.data());
    for (size_t i = begin; i < end; ++i) {
      std::byte* const image = buffer_.data() + (rows[i] - first) * image_.num_bytes;
      if (!is_written_[static_cast<size_t>(rows[i])]) image_.initial(rows[i], image);
      image_.load(slots[i], image);
    }
  });
}

void DiskRows::prefetch(std::span<const int64_t> rows) {
  std::vector<int64_t> wanted;
  for (const int64_t row : rows) {
    const bool is_here = cache_.slot_of(row) != RowCache::kNone;
    if (!is_here && is_written_[static_cast<size_t>(row)]) wanted.push_back(row);
  }
  for_each_run(wanted, [&](size_t begin, size_t end) {
    const int64_t count = wanted[end - 1] - wanted[begin] + 1;
    // A hint: whether it works changes nothing but time.
    ::posix_fadvise(file_.io().descriptor, static_cast<off_t>(offset_of(wanted[begin])),
                    static_cast<off_t>(count * image_.num_bytes), POSIX_FADV_WILLNEED);
  });
}

bool DiskRows::was_changed(int64_t row) const {
  const int32_t slot = cache_.slot_of(row);
  return is_written_[static_cast<size_t>(row)] ||
         (slot != RowCache::kNone && changed_[static_cast<size_t>(slot)] != 0);
}

void DiskRows::read(int64_t row, std::byte* image) {
  const int32_t slot = cache_.slot_of(row);
  if (slot != RowCache::kNone) return image_.save(slot, image);
  if (!is_written_[static_cast<size_t>(row)]) return image_.initial(row, image);
  transfer(IoKind::kRead, row, 1, image);
}

void DiskRows::write(int64_t row, const std::byte* image) {
  const int32_t slot = cache_.slot_of(row);
  if (slot != RowCache::kNone) {
    image_.load(slot, image);
    return mark_changed(slot);
  }
  std::copy_n(image, image_.num_bytes, buffer_.data());
  transfer(IoKind::kWrite, row, 1, buffer_.data());
  is_written_[static_cast<size_t>(row)] = true;
}

}  // namespace trireme::parallel::inline internal
