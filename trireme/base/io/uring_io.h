// AsyncIo with Linux's io_uring: the kernel reads and writes, so none of our threads wait.
#pragma once

#include <memory>

#include "trireme/base/io/async_io.h"

namespace trireme::inline internal {

// Null if this program was built without liburing, or if the kernel is older than 5.6 or refuses,
// as it often does in containers.
// num_requests: how many will be in flight at once, at most
std::unique_ptr<AsyncIo> make_uring_io(const IoFile& file, unsigned num_requests = kUsualRequests);

}  // namespace trireme::inline internal
