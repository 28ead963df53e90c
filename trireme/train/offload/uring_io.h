// AsyncIo by Linux's io_uring: the kernel reads and writes, no thread of ours waits.
#pragma once

#include <memory>

#include "trireme/train/offload/async_io.h"

namespace trireme::train {

// Null when this program was built without liburing, or when the kernel is older than 5.6 or
// refuses (containers often do).
std::unique_ptr<AsyncIo> make_uring_io(const IoFile& file);

}  // namespace trireme::train
