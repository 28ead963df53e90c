#include "trireme/parallel/embedding/disk/disk_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::parallel {
namespace {

constexpr int64_t kMostBufferBytes = int64_t{16} << 20;
constexpr size_t kImagesAtOnce = 1024;  // of write()
// The rest is for rows, which are what the limit is for.
constexpr int64_t kBufferShare = 8;  // of the slots' bytes
// Below every row's number and below kNoRow.
constexpr int64_t kFirstLent = -2;  // rows of lent slots have numbers from here down

}  // namespace

DiskRows::DiskRows(const DiskRowsOptions& options, RowImage image)
    : options_(options),
      image_(std::move(image)),
      log_({.table = options.table,
            .folder = options.folder,
            .num_rows = options.num_rows,
            .image_bytes = image_.num_bytes,
            .buffer_bytes =
                std::min(kMostBufferBytes, options.num_slots * image_.num_bytes / kBufferShare),
            .grows = options.grows}),
      cache_(options.num_slots),
      changed_(static_cast<size_t>(options.num_slots)),
      buffer_(image_bytes()) {}

void DiskRows::evict(int64_t row, int64_t slot) {
  uint8_t& changed = changed_[static_cast<size_t>(slot)];
  // A lent row is nobody's: its values are drawn again when they are asked for.
  if (std::exchange(changed, 0) == 0 || row <= kFirstLent) return;
  image_.save(slot, buffer_.data());
  log_.append(row, buffer_);
}

int64_t DiskRows::place(int64_t row) {
  const RowCache::Placed placed = cache_.place(row);
  TRIREME_CHECK(placed.slot != RowCache::kNone, "embedding table \"", shown(options_.table),
                "\": a batch needs more than the ", options_.num_slots,
                " rows of this rank's part that fit into memory at once; raise tables.memory, or "
                "lower train.global_batch");
  if (placed.evicted_row != RowCache::kNoRow) evict(placed.evicted_row, placed.slot);
  return placed.slot;
}

// The row's number is a new one, so that it leaves the memory as one that was used once.
int64_t DiskRows::lend() { return place(kFirstLent - num_lent_++); }

void DiskRows::grow(int64_t num_rows) {
  if (num_rows <= options_.num_rows) return;
  // Half more than before, so that growing costs little in the sum.
  const int64_t room = std::max(num_rows, options_.num_rows + options_.num_rows / 2);
  log_.grow(room);
  options_.num_rows = room;
}

void DiskRows::forget(int64_t row) {
  log_.erase(row);
  const int32_t slot = cache_.slot_of(row);
  // It must not be written back when it leaves.
  if (slot != RowCache::kNone) changed_[static_cast<size_t>(slot)] = 0;
}

void DiskRows::clear(int64_t num_rows) {
  log_.clear();
  grow(num_rows);
  cache_ = RowCache(options_.num_slots);
  std::ranges::fill(changed_, uint8_t{0});
}

void DiskRows::fetch(std::span<const int64_t> rows, std::vector<int64_t>& slots) {
  std::vector<int64_t> missing_rows, missing_slots;
  std::vector<size_t> places;
  for (const int64_t row : rows) {
    const int32_t slot = cache_.use(row);
    slots.push_back(slot);
    // All missing rows are placed before any is read, so that the reads are one batch.
    if (slot != RowCache::kNone) continue;
    missing_rows.push_back(row);
    places.push_back(slots.size() - 1);
  }
  for (size_t i = 0; i < missing_rows.size(); ++i) {
    const int64_t slot = place(missing_rows[i]);
    missing_slots.push_back(slot);
    slots[places[i]] = slot;
  }
  load_missing(missing_rows, missing_slots);
  num_missed_ += std::ssize(missing_rows);
  num_found_ += std::ssize(rows) - std::ssize(missing_rows);
}

void DiskRows::change_again(std::vector<int64_t> rows,
                            const std::function<void(std::span<const int64_t> slots)>& change) {
  std::erase_if(rows, [this](int64_t row) { return !was_changed(row); });
  // As many as fit into memory at once.
  const auto at_once = static_cast<size_t>(options_.num_slots);
  std::vector<int64_t> slots;
  for (std::span<const int64_t> left = rows; !left.empty();) {
    const auto now = left.first(std::min(at_once, left.size()));
    left = left.subspan(now.size());
    release();
    slots.clear();
    fetch(now, slots);
    change(slots);
    for (const int64_t slot : slots) mark_changed(slot);
  }
  release();
}

void DiskRows::load_missing(std::span<const int64_t> rows, std::span<const int64_t> slots) {
  std::vector<int64_t> stored_rows, stored_slots;
  for (size_t i = 0; i < rows.size(); ++i) {
    // A row that was never written has its initial values, which are computed and not stored.
    if (log_.has(rows[i])) {
      stored_rows.push_back(rows[i]);
      stored_slots.push_back(slots[i]);
    } else {
      image_.initial(rows[i], buffer_.data());
      image_.load(slots[i], buffer_.data());
    }
  }
  if (stored_rows.empty()) return;
  log_.read(stored_rows,
            [&](size_t i, const std::byte* image) { image_.load(stored_slots[i], image); });
}

void DiskRows::prefetch(std::span<const int64_t> rows) {
  std::vector<int64_t> wanted;
  for (const int64_t row : rows) {
    // Rows that the log lacks cost no disk.
    if (cache_.slot_of(row) == RowCache::kNone && log_.has(row)) wanted.push_back(row);
  }
  if (!wanted.empty()) log_.prefetch(wanted);
}

bool DiskRows::was_changed(int64_t row) const {
  const int32_t slot = cache_.slot_of(row);
  return log_.has(row) || (slot != RowCache::kNone && changed_[static_cast<size_t>(slot)] != 0);
}

void DiskRows::for_each(std::span<const int64_t> rows, const RowLog::Use& use) {
  std::vector<int64_t> stored;
  std::vector<size_t> places;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t slot = cache_.slot_of(rows[i]);
    if (slot == RowCache::kNone && log_.has(rows[i])) {
      stored.push_back(rows[i]);
      places.push_back(i);
      continue;
    }
    if (slot != RowCache::kNone) {
      image_.save(slot, buffer_.data());
    } else {
      image_.initial(rows[i], buffer_.data());
    }
    use(i, buffer_.data());
  }
  if (stored.empty()) return;
  log_.read(stored, [&](size_t i, const std::byte* image) { use(places[i], image); });
}

void DiskRows::read(std::span<const int64_t> rows, Part part, std::byte* out) {
  for_each(rows, [&](size_t i, const std::byte* image) {
    std::copy_n(image + part.begin, part.num_bytes, out + static_cast<int64_t>(i) * part.num_bytes);
  });
}

void DiskRows::write(int64_t begin, Part part, std::span<const std::byte> values) {
  const auto part_bytes = static_cast<size_t>(part.num_bytes);
  std::vector<std::byte> images;
  std::vector<int64_t> rows;
  while (!values.empty()) {
    rows.resize(std::min(kImagesAtOnce, values.size() / part_bytes));
    std::iota(rows.begin(), rows.end(), begin);
    images.resize(rows.size() * image_bytes());
    for_each(rows, [&](size_t i, const std::byte* image) {
      std::byte* const changed = images.data() + i * image_bytes();
      std::copy_n(image, image_bytes(), changed);
      std::copy_n(values.data() + i * part_bytes, part_bytes, changed + part.begin);
      if (image_.loaded) image_.loaded(changed);
    });
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::span image(images.data() + i * image_bytes(), image_bytes());
      const int32_t slot = cache_.slot_of(rows[i]);
      if (slot == RowCache::kNone) {
        log_.append(rows[i], image);
      } else {
        image_.load(slot, image.data());
        mark_changed(slot);
      }
    }
    begin += std::ssize(rows);
    values = values.subspan(rows.size() * part_bytes);
  }
}

StoredImages::StoredImages(std::shared_ptr<DiskRows> rows, int64_t begin, const at::Tensor& row,
                           std::shared_ptr<const std::vector<int64_t>> numbers)
    : rows_(std::move(rows)),
      part_{begin, static_cast<int64_t>(row.nbytes())},
      row_(at::empty_like(row)),
      numbers_(std::move(numbers)) {}

at::Tensor StoredImages::read(int64_t begin, int64_t end) {
  if (numbers_) {
    return read_numbers(
        std::span(*numbers_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  }
  std::vector<int64_t> rows(static_cast<size_t>(end - begin));
  std::iota(rows.begin(), rows.end(), begin);
  return read_numbers(rows);
}

at::Tensor StoredImages::read(std::span<const int64_t> rows) {
  if (!numbers_) return read_numbers(rows);
  std::vector<int64_t> numbers;
  for (const int64_t row : rows) numbers.push_back(numbers_->at(static_cast<size_t>(row)));
  return read_numbers(numbers);
}

at::Tensor StoredImages::read_numbers(std::span<const int64_t> numbers) {
  std::vector<int64_t> sizes{std::ssize(numbers)};
  sizes.insert(sizes.end(), row_.sizes().begin(), row_.sizes().end());
  const at::Tensor values = at::empty(sizes, row_.options());
  rows_->read(numbers, part_, static_cast<std::byte*>(values.mutable_data_ptr()));
  return values;
}

void StoredImages::write(int64_t begin, const at::Tensor& values) {
  // A row's number is then not its place.
  TRIREME_ASSERT(!numbers_, "rows in another order are written");
  rows_->write(begin, part_,
               {static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
}

}  // namespace trireme::parallel
