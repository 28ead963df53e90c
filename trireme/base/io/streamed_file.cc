#include "trireme/base/io/streamed_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
  const int code = errno;
  throw Error(concat("cannot write ", path.string(), ": ", std::strerror(code)));
}

Descriptor open_existing(const std::filesystem::path& path) {
  Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.is_open()) fail(path);
  return file;
}

}  // namespace

StreamedFile::StreamedFile(std::filesystem::path path, uint64_t num_bytes)
    : path_(std::move(path)), cached_(open_existing(path_)) {
  for (Buffer& buffer : buffers_) buffer.data = aligned_bytes(kBufferBytes);
  // Its last block is written again, with what follows.
  used_ = num_bytes % kIoAlignment;
  offset_ = num_bytes - used_;
  if (used_ > 0) InputFile(path_).read(offset_, std::span(buffers_[0].data.get(), used_));
}

void StreamedFile::advance(size_t num_bytes) {
  TRIREME_ASSERT(num_bytes <= kBufferBytes - used_, num_bytes, " bytes in a room of ",
                 kBufferBytes - used_);
  used_ += num_bytes;
  if (used_ == kBufferBytes) start_write();
}

// Hands the current buffer to the disk and takes the other one.
void StreamedFile::start_write() {
  Buffer& full = buffers_[current_];
  if (io_) {
    full.offset = offset_;
    full.ticket = io_->start({IoKind::kWrite, offset_, full.data.get(), kBufferBytes});
    current_ = 1 - current_;
  } else {
    // With the first one in the file, it can be found out how the others may be written.
    write_through_cache(std::span(full.data.get(), kBufferBytes), offset_);
    streamed_ = open_existing(path_);
    io_ = make_async_io({.descriptor = streamed_.get(),
                         .path = path_.string(),
                         .is_direct = make_direct(streamed_.get(), kBufferBytes)},
                        /*use_uring=*/true, static_cast<unsigned>(buffers_.size()));
  }
  offset_ += kBufferBytes;
  used_ = 0;
  wait_for(buffers_[current_]);
}

void StreamedFile::wait_for(Buffer& buffer) {
  // Reset first: a wait that throws must not be repeated by the next one.
  const auto ticket = std::exchange(buffer.ticket, std::nullopt);
  if (!ticket) return;
  try {
    io_->wait(*ticket);
  } catch (const Error&) {
    // Before the end of a disk or a limit, only the cache takes a part of a block. What it cannot
    // take either, it says why.
    write_through_cache(std::span(buffer.data.get(), kBufferBytes), buffer.offset);
  }
}

void StreamedFile::flush() {
  for (Buffer& buffer : buffers_) wait_for(buffer);
  std::byte* const data = buffers_[current_].data.get();
  write_through_cache(std::span(data, used_), offset_);
  const size_t in_last_block = used_ % kIoAlignment;
  const size_t before = used_ - in_last_block;
  std::memmove(data, data + before, in_last_block);
  offset_ += before;
  used_ = in_last_block;
}

void StreamedFile::sync() {
  flush();
  if (::fsync(cached_.get()) != 0) fail(path_);
}

void StreamedFile::write_through_cache(std::span<const std::byte> bytes, uint64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(cached_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path_);
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

}  // namespace trireme
