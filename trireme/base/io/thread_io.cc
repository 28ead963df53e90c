#include "trireme/base/io/thread_io.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace trireme::inline internal {

ThreadIo::ThreadIo(IoFile file) : file_(std::move(file)) {
  for (std::thread& thread : threads_) thread = std::thread([this] { work(); });
}

ThreadIo::~ThreadIo() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wanted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

AsyncIo::Ticket ThreadIo::start(const IoRequest& request) {
  const std::lock_guard lock(mutex_);
  const Ticket ticket = next_++;
  outcomes_[ticket] = {};
  queue_.emplace_back(ticket, request);
  wanted_.notify_one();
  return ticket;
}

void ThreadIo::wait(Ticket ticket) {
  Outcome outcome;
  {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [&] { return outcomes_.at(ticket).is_done; });
    outcome = outcomes_.at(ticket);
    outcomes_.erase(ticket);
  }
  if (outcome.code != 0) throw_io_error(file_, outcome.kind, outcome.offset, outcome.code);
}

void ThreadIo::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wanted_.wait(lock, [&] { return is_stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto [ticket, request] = queue_.front();
    queue_.pop_front();
    lock.unlock();
    const Outcome outcome = transfer(request);
    lock.lock();
    outcomes_[ticket] = outcome;
    finished_.notify_all();
  }
}

ThreadIo::Outcome ThreadIo::transfer(const IoRequest& request) const {
  const bool reads = request.kind == IoKind::kRead;
  const int fd = file_.descriptor;
  size_t done = 0;
  while (done < request.num_bytes) {
    const size_t left = request.num_bytes - done;
    const auto at = static_cast<off_t>(request.offset + done);
    const ssize_t moved = reads ? ::pread(fd, request.data + done, left, at)
                                : ::pwrite(fd, request.data + done, left, at);
    if (moved < 0 && errno == EINTR) continue;
    // The file has its full length, so an earlier end means damage.
    if (moved <= 0) return {true, moved < 0 ? errno : EIO, request.offset + done, request.kind};
    done += static_cast<size_t>(moved);
  }
  if (!file_.is_direct) {
    const auto begin = static_cast<off_t>(request.offset);
    const auto length = static_cast<off_t>(request.num_bytes);
    // Only pages that are on the disk can be dropped. A file system with neither call keeps them,
    // which only costs memory. A write that failed in the background is an error.
    if (!reads &&
        ::sync_file_range(fd, begin, length,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                              SYNC_FILE_RANGE_WAIT_AFTER) != 0 &&
        (errno == EIO || errno == ENOSPC)) {
      return {true, errno, request.offset, request.kind};
    }
    ::posix_fadvise(fd, begin, length, POSIX_FADV_DONTNEED);
  }
  return {.is_done = true, .kind = request.kind};
}

}  // namespace trireme::inline internal
