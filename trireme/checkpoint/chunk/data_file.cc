#include "trireme/checkpoint/chunk/data_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/numbers.h"

namespace trireme::checkpoint {

// Two buffers take turns: while the disk writes one, the caller fills the other, and append() waits
// only when both are full. With O_DIRECT each write must begin and end at a multiple of
// kIoAlignment, so the last one is filled up with zeros and finish() cuts the file to its length.
// The head is written last, since it has the digests of what follows it; until then the file begins
// with zeros, and no reader takes it for a safetensors file.

namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, int code) {
  throw Error(concat("cannot ", what, " ", path.string(), ": ", std::strerror(code)));
}

}  // namespace

DataFile::DataFile(const std::filesystem::path& path, uint64_t head_bytes,
                   std::optional<uint64_t> data_bytes, size_t buffer_bytes)
    : path_(path),
      file_(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)),
      head_bytes_(head_bytes) {
  TRIREME_ASSERT(head_bytes >= kIoAlignment && head_bytes % kIoAlignment == 0, "a head of ",
                 head_bytes, " bytes");
  if (!file_.is_open()) fail("create", path_, errno);
  // A full disk should be noticed before an hour of writing, not at its end.
  const uint64_t reserved = round_up(head_bytes + data_bytes.value_or(0), kIoAlignment);
  if (const int code = reserve_space(file_.get(), 0, static_cast<int64_t>(reserved)); code != 0)
    fail("write", path_, code);
  io_ = make_async_io({.descriptor = file_.get(),
                       .path = path_.string(),
                       .is_direct = make_direct(file_.get(), reserved)});
  const size_t most = data_bytes.value_or(buffer_bytes);
  const size_t capacity = std::clamp(round_up(most, kIoAlignment), kIoAlignment, buffer_bytes);
  for (Buffer& buffer : buffers_) buffer.data = aligned_bytes(capacity);
  capacity_ = capacity;
}

void DataFile::wait_for(Buffer& buffer) {
  // Reset first: a wait that throws must not be repeated by the next one.
  if (!buffer.ticket) return;
  const AsyncIo::Ticket ticket = *buffer.ticket;
  buffer.ticket.reset();
  io_->wait(ticket);
}

// Hands the current buffer to the disk and takes the other one.
void DataFile::start_write() {
  Buffer& buffer = buffers_[current_];
  const size_t length = round_up(buffer.used, kIoAlignment);
  // Old bytes of the buffer would reach the disk. They are cut off, but not before a crash.
  std::memset(buffer.data.get() + buffer.used, 0, length - buffer.used);
  buffer.ticket = io_->start({IoKind::kWrite, head_bytes_ + written_, buffer.data.get(), length});
  written_ += buffer.used;
  buffer.used = 0;
  current_ = 1 - current_;
  // Both buffers are on their way otherwise.
  wait_for(buffers_[current_]);
}

uint64_t DataFile::append(std::span<const std::byte> bytes) {
  const uint64_t begin = data_bytes_;
  data_bytes_ += bytes.size();
  while (!bytes.empty()) {
    Buffer& buffer = buffers_[current_];
    const size_t count = std::min(bytes.size(), capacity_ - buffer.used);
    std::memcpy(buffer.data.get() + buffer.used, bytes.data(), count);
    buffer.used += count;
    bytes = bytes.subspan(count);
    if (buffer.used == capacity_) start_write();
  }
  return begin;
}

void DataFile::finish(std::string_view head, bool fsync) {
  TRIREME_ASSERT(head.size() == head_bytes_, path_.string(), " has a head of ", head.size(),
                 " bytes, expected ", head_bytes_);
  if (buffers_[current_].used > 0) start_write();
  for (size_t at = 0; at < head.size();) {
    Buffer& buffer = buffers_[current_];
    const size_t count = std::min(capacity_, head.size() - at);
    std::memcpy(buffer.data.get(), head.data() + at, count);
    buffer.ticket = io_->start({IoKind::kWrite, at, buffer.data.get(), count});
    at += count;
    current_ = 1 - current_;
    wait_for(buffers_[current_]);
  }
  // Errors of the last writes come here, before anything says that the file is whole.
  for (Buffer& buffer : buffers_) wait_for(buffer);
  // The last block was filled up, and more may have been reserved.
  if (::ftruncate(file_.get(), static_cast<off_t>(num_bytes())) != 0) fail("write", path_, errno);
  // After the cut: the length is metadata that must be on the disk too.
  if (fsync && ::fsync(file_.get()) != 0) fail("write", path_, errno);
  io_.reset();
  // Some file systems report a full disk only here.
  if (file_.close() != 0) fail("write", path_, errno);
}

}  // namespace trireme::checkpoint
