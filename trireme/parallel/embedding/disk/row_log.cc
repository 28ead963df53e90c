#include "trireme/parallel/embedding/disk/row_log.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/numbers.h"
#include "trireme/base/words.h"

namespace trireme::parallel {

// A log-structured file: a row's new image is appended, and its old one becomes garbage. Writing in
// place would cost a random write per row; a segment is one large write. Segments are emptied when
// few are free, the one with the fewest live images first, and what is live there is appended
// again. The file has a quarter more room than images, so the emptied segment is at most four
// fifths live and each round wins space. positions_ is in memory and only there: the file is
// scratch, and a checkpoint reads rows through this class. What is read early (prefetch_) refers to
// places in the file, so nothing may be appended while it is under way: a segment could be emptied
// and filled again under it.

namespace {

constexpr int64_t kBlock = kIoAlignment;
constexpr int64_t kNumberBytes = sizeof(int64_t);  // of the row, before its image
constexpr int64_t kMostSegmentBytes = int64_t{256} << 10;
constexpr int64_t kRecordsAtLeast = 8;   // per segment
constexpr int64_t kSegmentsAbout = 128;  // of a small table, so that each is a small part of it
constexpr size_t kSpareSegments = 3;     // are free before one is opened
// Of the io ring. Beyond it a read is made in several rounds.
constexpr unsigned kMostRequests = 1024;

int64_t round_to_blocks(int64_t num_bytes) {
  return static_cast<int64_t>(round_up(static_cast<size_t>(num_bytes), kIoAlignment));
}

int64_t segment_bytes_for(int64_t record_bytes, const RowLogOptions& options) {
  const int64_t wanted =
      options.grows
          ? kMostSegmentBytes
          : std::min(kMostSegmentBytes, record_bytes * (options.num_rows / kSegmentsAbout + 1));
  return round_to_blocks(std::max(wanted, kRecordsAtLeast * record_bytes));
}

}  // namespace

AlignedBytes RowLog::allocate(int64_t num_bytes) {
  return aligned_bytes(static_cast<size_t>(round_to_blocks(num_bytes)));
}

RowLog::RowLog(const RowLogOptions& options)
    : table_(options.table),
      record_bytes_(static_cast<int64_t>(sizeof(int64_t)) + options.image_bytes),
      segment_bytes_(segment_bytes_for(record_bytes_, options)),
      records_(static_cast<uint32_t>(segment_bytes_ / record_bytes_)),
      buffer_bytes_(round_to_blocks(std::max(options.buffer_bytes, segment_bytes_ + kBlock))) {
  const int64_t num_segments = segments_for(options.num_rows);
  file_.emplace(
      options.folder, static_cast<uint64_t>(num_segments * segment_bytes_),
      ScratchUse{.key = "tables.folder",
                 .content = concat("the rows of embedding table \"", shown(table_), "\"")});
  io_ = make_async_io(file_->io(), /*use_uring=*/true, kMostRequests);
  positions_.assign(static_cast<size_t>(options.num_rows), kNowhere);
  add_segments(num_segments);
  for (Reads* const reads : {&reads_, &prefetch_}) reads->data = allocate(buffer_bytes_);
  for (Buffer& buffer : buffers_) buffer.data = allocate(segment_bytes_);
  open_segment();
}

int64_t RowLog::segments_for(int64_t num_rows) const {
  // A quarter more than the newest images, so those are at most four fifths of a segment that is
  // emptied.
  const int64_t num_segments =
      (num_rows + num_rows / 4) / records_ + static_cast<int64_t>(kSpareSegments + kNumBuffers) + 1;
  TRIREME_CHECK(num_segments < int64_t{kNowhere} / records_, "embedding table \"", shown(table_),
                "\" has ", num_rows, " rows on this rank; a table on a disk has at most ",
                int64_t{kNowhere} / 5 * 4, " on each; split it over more ranks");
  return num_segments;
}

void RowLog::add_segments(int64_t num_segments) {
  const auto first = std::ssize(num_live_), end = first + num_segments;
  num_live_.resize(static_cast<size_t>(end));
  is_closed_.resize(static_cast<size_t>(end));
  // From the back, so that the file is filled from its beginning.
  for (int64_t segment = end; segment-- > first;) free_.push_back(segment);
}

void RowLog::grow(int64_t num_rows) {
  if (num_rows <= std::ssize(positions_)) return;
  const int64_t num_segments = segments_for(num_rows) - std::ssize(num_live_);
  file_->grow(static_cast<uint64_t>(num_segments * segment_bytes_));
  add_segments(num_segments);
  positions_.resize(static_cast<size_t>(num_rows), kNowhere);
}

uint64_t RowLog::offset_of(uint32_t position) const {
  return static_cast<uint64_t>(segment_of(position) * segment_bytes_ +
                               int64_t{position % records_} * record_bytes_);
}

RowLog::Buffer* RowLog::buffer_of(int64_t segment) {
  const auto found = std::ranges::find(buffers_, segment, &Buffer::segment);
  return found == buffers_.end() ? nullptr : &*found;
}

const std::byte* RowLog::image_in_memory(int64_t row) {
  const uint32_t position = positions_[static_cast<size_t>(row)];
  const Buffer* const buffer = buffer_of(segment_of(position));
  if (buffer == nullptr) return nullptr;
  return buffer->data.get() + int64_t{position % records_} * record_bytes_ + kNumberBytes;
}

void RowLog::wait(Buffer& buffer) {
  if (buffer.ticket) io_->wait(*std::exchange(buffer.ticket, std::nullopt));
}

void RowLog::wait(Reads& reads) {
  for (const AsyncIo::Ticket ticket : std::exchange(reads.tickets, {})) io_->wait(ticket);
}

// The next buffer takes a free segment.
void RowLog::open_segment() {
  filling_ = (filling_ + 1) % kNumBuffers;
  Buffer& buffer = buffers_[filling_];
  // Its last write has to be on the disk before its memory is filled again.
  wait(buffer);
  TRIREME_ASSERT(!free_.empty(), "no segment is free");
  const int64_t segment = free_.back();
  free_.pop_back();
  // Its old images may still be on their way.
  if (Buffer* const last = buffer_of(segment)) {
    wait(*last);
    last->segment = -1;
  }
  buffer.segment = segment;
  buffer.num_records = 0;
}

void RowLog::put(int64_t row, std::span<const std::byte> image) {
  if (buffers_[filling_].num_records == records_) {
    Buffer& full = buffers_[filling_];
    is_closed_[static_cast<size_t>(full.segment)] = true;
    full.ticket = io_->start({IoKind::kWrite, static_cast<uint64_t>(full.segment * segment_bytes_),
                              full.data.get(), static_cast<size_t>(segment_bytes_)});
    open_segment();
  }
  Buffer& buffer = buffers_[filling_];
  std::byte* const record = buffer.data.get() + buffer.num_records * record_bytes_;
  std::memcpy(record, &row, kNumberBytes);
  std::ranges::copy(image, record + kNumberBytes);
  uint32_t& position = positions_[static_cast<size_t>(row)];
  // The old image is garbage from now on.
  if (position != kNowhere) --num_live_[static_cast<size_t>(segment_of(position))];
  position = static_cast<uint32_t>(buffer.segment * records_ + buffer.num_records++);
  ++num_live_[static_cast<size_t>(buffer.segment)];
}

void RowLog::append(int64_t row, std::span<const std::byte> image) {
  wait(prefetch_);  // a segment that is read could become a new one
  prefetched_.erase(row);
  put(row, image);
  // More than one: emptying a segment may fill and open another.
  while (free_.size() < kSpareSegments) empty_one_segment();
}

void RowLog::erase(int64_t row) {
  prefetched_.erase(row);
  uint32_t& position = positions_[static_cast<size_t>(row)];
  if (position == kNowhere) return;
  --num_live_[static_cast<size_t>(segment_of(position))];
  position = kNowhere;
}

void RowLog::clear() {
  prefetched_.clear();
  std::ranges::fill(num_live_, uint32_t{0});
  std::ranges::fill(positions_, kNowhere);
}

void RowLog::empty_one_segment() {
  // A linear search: there are some hundred segments, and it is rare.
  int64_t victim = -1;
  for (int64_t segment = 0; segment < std::ssize(num_live_); ++segment) {
    const auto at = static_cast<size_t>(segment);
    const bool is_better = victim < 0 || num_live_[at] < num_live_[static_cast<size_t>(victim)];
    if (is_closed_[at] && is_better) victim = segment;
  }
  TRIREME_ASSERT(victim >= 0, "no segment can be emptied");
  uint32_t& num_live = num_live_[static_cast<size_t>(victim)];
  std::byte* const records = reads_.data.get();
  // The segment may not be on the disk yet.
  if (const Buffer* const buffer = buffer_of(victim)) {
    std::copy_n(buffer->data.get(), segment_bytes_, records);
  } else if (num_live > 0) {
    io_->wait(io_->start({IoKind::kRead, static_cast<uint64_t>(victim * segment_bytes_), records,
                          static_cast<size_t>(segment_bytes_)}));
  }
  // No longer a candidate, and not free before its live images are elsewhere.
  is_closed_[static_cast<size_t>(victim)] = false;
  for (uint32_t i = 0; i < records_ && num_live > 0; ++i) {
    const std::byte* const record = records + int64_t{i} * record_bytes_;
    int64_t row = 0;
    std::memcpy(&row, record, kNumberBytes);
    // An image that a newer one has replaced.
    if (positions_[static_cast<size_t>(row)] != static_cast<uint32_t>(victim * records_ + i)) {
      continue;
    }
    put(row, {record + kNumberBytes, static_cast<size_t>(record_bytes_ - kNumberBytes)});
  }
  free_.push_back(victim);
}

size_t RowLog::start(Reads& reads, std::span<const int64_t> rows, size_t first, const Use& found) {
  // Rows that were written together are read together.
  IoRequest request{.kind = IoKind::kRead, .data = reads.data.get() + reads.used_bytes};
  const auto submit = [&] {
    if (request.num_bytes > 0) reads.tickets.push_back(io_->start(request));
    reads.used_bytes += static_cast<int64_t>(request.num_bytes);
    request.data += request.num_bytes;
    request.num_bytes = 0;
  };
  size_t i = first;
  for (; i < rows.size(); ++i) {
    const uint64_t offset = offset_of(positions_[static_cast<size_t>(rows[i])]);
    const uint64_t begin = offset / kBlock * kBlock;
    const auto end =
        static_cast<uint64_t>(round_to_blocks(static_cast<int64_t>(offset) + record_bytes_));
    const bool goes_on = begin >= request.offset && begin <= request.offset + request.num_bytes;
    if (!goes_on || request.num_bytes == 0) {
      submit();
      request.offset = begin;
    }
    const uint64_t num_bytes = std::max(request.num_bytes, end - request.offset);
    if (reads.used_bytes + static_cast<int64_t>(num_bytes) > buffer_bytes_ ||
        // Room in the ring for the writes that are under way.
        reads.tickets.size() >= kMostRequests - kNumBuffers - 1) {
      break;
    }
    request.num_bytes = num_bytes;
    found(i, request.data + (offset - request.offset) + kNumberBytes);
  }
  submit();
  return i;
}

void RowLog::read(std::span<const int64_t> rows, const Use& use) {
  has_read_ = true;
  wait(prefetch_);
  std::vector<int64_t> in_file;
  std::vector<size_t> places;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto early = prefetched_.find(rows[i]);
    if (early != prefetched_.end()) {
      use(i, early->second);
    } else if (const std::byte* const image = image_in_memory(rows[i])) {
      use(i, image);
    } else {
      in_file.push_back(rows[i]);
      places.push_back(i);
    }
  }
  std::vector<const std::byte*> images(in_file.size());
  for (size_t first = 0, end = 0; first < in_file.size(); first = end) {
    reads_.used_bytes = 0;
    end =
        start(reads_, in_file, first, [&](size_t i, const std::byte* image) { images[i] = image; });
    wait(reads_);
    for (size_t i = first; i < end; ++i) use(places[i], images[i]);
  }
}

void RowLog::prefetch(std::span<const int64_t> rows) {
  if (std::exchange(has_read_, false)) {  // what was read early for an earlier batch is of no use
    wait(prefetch_);
    prefetched_.clear();
    prefetch_.used_bytes = 0;
  }
  std::vector<int64_t> in_file;
  for (const int64_t row : rows) {
    if (!prefetched_.contains(row) && image_in_memory(row) == nullptr) in_file.push_back(row);
  }
  start(prefetch_, in_file, 0,
        [&](size_t i, const std::byte* image) { prefetched_[in_file[i]] = image; });
}

}  // namespace trireme::parallel
