#include "trireme/checkpoint/chunk/data_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/round_up.h"

namespace trireme::checkpoint::inline internal {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, int code) {
  throw Error(concat("cannot ", what, " ", path.string(), ": ", std::strerror(code)));
}

std::byte* aligned_bytes(size_t num_bytes) {
  void* const data = std::aligned_alloc(kIoAlignment, num_bytes);
  if (data == nullptr) throw std::bad_alloc();
  return static_cast<std::byte*>(data);
}

}  // namespace

DataFile::DataFile(const std::filesystem::path& path, uint64_t head_bytes,
                   std::optional<uint64_t> data_bytes)
    : path_(path),
      file_(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)),
      head_bytes_(head_bytes) {
  TRIREME_ASSERT(head_bytes >= kIoAlignment && head_bytes % kIoAlignment == 0, "a head of ",
                 head_bytes, " bytes");
  if (!file_.is_open()) fail("create", path_, errno);
  const uint64_t reserved = round_up(head_bytes + data_bytes.value_or(0), kIoAlignment);
  if (const int code = reserve_space(file_.get(), 0, static_cast<int64_t>(reserved)); code != 0)
    fail("write", path_, code);
  io_ = make_async_io({.descriptor = file_.get(),
                       .path = path_.string(),
                       .is_direct = make_direct(file_.get(), reserved)});
  const size_t most = data_bytes.value_or(kBufferBytes);
  const size_t capacity = std::clamp(round_up(most, kIoAlignment), kIoAlignment, kBufferBytes);
  for (Buffer& buffer : buffers_) buffer.data.reset(aligned_bytes(capacity));
  capacity_ = capacity;
}

void DataFile::wait_for(Buffer& buffer) {
  if (!buffer.ticket) return;
  const AsyncIo::Ticket ticket = *buffer.ticket;
  buffer.ticket.reset();
  io_->wait(ticket);
}

// Hands the current buffer to the disk and takes the other one.
void DataFile::start_write() {
  Buffer& buffer = buffers_[current_];
  const size_t length = round_up(buffer.used, kIoAlignment);
  std::memset(buffer.data.get() + buffer.used, 0, length - buffer.used);
  buffer.ticket = io_->start({IoKind::kWrite, head_bytes_ + written_, buffer.data.get(), length});
  written_ += buffer.used;
  buffer.used = 0;
  current_ = 1 - current_;
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
  for (Buffer& buffer : buffers_) wait_for(buffer);
  // The last block was filled up, and more may have been reserved.
  if (::ftruncate(file_.get(), static_cast<off_t>(num_bytes())) != 0) fail("write", path_, errno);
  if (fsync && ::fsync(file_.get()) != 0) fail("write", path_, errno);
  io_.reset();
  if (file_.close() != 0) fail("write", path_, errno);
}

}  // namespace trireme::checkpoint::inline internal
