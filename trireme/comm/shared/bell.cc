#include "trireme/comm/shared/bell.h"

#include <climits>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace trireme::comm::inline internal {

void Bell::wake_all() {
  rings.fetch_add(1);
  syscall(SYS_futex, &rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::wait(uint32_t seen, std::chrono::nanoseconds slice) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(slice);
  const timespec limit{seconds.count(), (slice - seconds).count()};
  syscall(SYS_futex, &rings, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace trireme::comm::inline internal
