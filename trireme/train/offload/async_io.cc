#include "trireme/train/offload/async_io.h"

#include <cstring>

#include "trireme/base/error.h"
#include "trireme/train/offload/thread_io.h"
#include "trireme/train/offload/uring_io.h"

namespace trireme::train::inline internal {

std::unique_ptr<AsyncIo> make_async_io(const IoFile& file, bool use_uring) {
  if (use_uring && file.is_direct) {
    if (auto io = make_uring_io(file)) return io;
  }
  return std::make_unique<ThreadIo>(file);
}

void throw_io_error(const IoFile& file, IoKind kind, uint64_t offset, int code) {
  throw Error(concat("cannot ", kind == IoKind::kRead ? "read" : "write", " ", file.path,
                     " at byte ", offset, ": ", std::strerror(code),
                     "; the last checkpoint is intact: free space or replace the disk (or set "
                     "offload.folder to another), then the same command resumes"));
}

}  // namespace trireme::train::inline internal
