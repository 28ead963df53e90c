#include "trireme/base/io/async_io.h"

#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/io/thread_io.h"
#include "trireme/base/io/uring_io.h"

namespace trireme::inline internal {

std::unique_ptr<AsyncIo> make_async_io(const IoFile& file, bool use_uring, unsigned num_requests) {
  if (use_uring && file.is_direct) {
    if (auto io = make_uring_io(file, num_requests)) return io;
  }
  return std::make_unique<ThreadIo>(file);
}

bool make_direct(int descriptor, uint64_t num_bytes) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0 || ::fcntl(descriptor, F_SETFL, flags | O_DIRECT) != 0) return false;
  if (num_bytes < kIoAlignment) return true;
  const std::unique_ptr<void, decltype(&std::free)> block(
      std::aligned_alloc(kIoAlignment, kIoAlignment), &std::free);
  const auto moves_all = [&](ssize_t moved) { return moved == ssize_t{kIoAlignment}; };
  const bool works = block && moves_all(::pread(descriptor, block.get(), kIoAlignment, 0)) &&
                     moves_all(::pwrite(descriptor, block.get(), kIoAlignment, 0));
  if (!works) ::fcntl(descriptor, F_SETFL, flags);
  return works;
}

void throw_io_error(const IoFile& file, IoKind kind, uint64_t offset, int code) {
  throw Error(concat("cannot ", kind == IoKind::kRead ? "read" : "write", " ", file.path,
                     " at byte ", offset, ": ", std::strerror(code), file.advice));
}

}  // namespace trireme::inline internal
