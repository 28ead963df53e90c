#include "trireme/base/io/async_io.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.h"

#ifdef TRIREME_HAVE_URING
#include <liburing.h>
#endif

namespace trireme {

std::unique_ptr<AsyncIo> make_async_io(const IoFile& file, bool use_uring, unsigned num_requests) {
  if (use_uring && file.is_direct) {
    if (auto io = make_uring_io(file, num_requests)) return io;
  }
  return std::make_unique<ThreadIo>(file);
}

AlignedBytes aligned_bytes(size_t num_bytes) {
  AlignedBytes memory(static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, num_bytes)));
  if (!memory) throw std::bad_alloc();
  return memory;
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

#ifdef TRIREME_HAVE_URING

namespace {

constexpr size_t kMaxBytesAtOnce = 1 << 30;  // the kernel moves at most 2 GiB - 4 KiB per request

bool has_read_and_write(io_uring& ring) {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring);
  if (probe == nullptr) return false;
  const bool has = io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                   io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  io_uring_free_probe(probe);
  return has;
}

class UringIo : public AsyncIo {
 public:
  // Takes over the ring.
  UringIo(IoFile file, io_uring ring) : file_(std::move(file)), ring_(ring) {}

  ~UringIo() override {
    while (num_in_flight_ > 0 && complete_one()) {
    }
    io_uring_queue_exit(&ring_);
  }

  Ticket start(const IoRequest& request) override {
    const Ticket ticket = next_++;
    transfers_[ticket] = {.request = request};
    if (request.num_bytes > 0) submit(ticket);
    return ticket;
  }

  void wait(Ticket ticket) override {
    Transfer& transfer = transfers_.at(ticket);
    while (transfer.is_running() && complete_one()) {
    }
    const Transfer ended = transfer;
    // If the wait failed, the kernel may still write into the transfer's memory.
    if (!ended.is_running()) transfers_.erase(ticket);
    if (ended.is_running() || ended.code != 0) {
      throw_io_error(file_, ended.request.kind, ended.request.offset + ended.done,
                     ended.code != 0 ? ended.code : EIO);
    }
  }

  std::string name() const override { return "io_uring"; }

 private:
  struct Transfer {
    IoRequest request;
    size_t done = 0;
    int code = 0;  // errno
    bool is_running() const { return code == 0 && done < request.num_bytes; }
  };

  // Requests the rest of a transfer.
  void submit(Ticket ticket) {
    Transfer& transfer = transfers_.at(ticket);
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) {  // more requests at once than any caller makes
      transfer.code = EBUSY;
      return;
    }
    const IoRequest& request = transfer.request;
    const auto length =
        static_cast<unsigned>(std::min(request.num_bytes - transfer.done, kMaxBytesAtOnce));
    std::byte* data = request.data + transfer.done;
    const uint64_t offset = request.offset + transfer.done;
    if (request.kind == IoKind::kRead) {
      io_uring_prep_read(entry, file_.descriptor, data, length, offset);
    } else {
      io_uring_prep_write(entry, file_.descriptor, data, length, offset);
    }
    io_uring_sqe_set_data(entry, reinterpret_cast<void*>(ticket));
    ++num_in_flight_;
    // Entries that were not accepted go with the next submission, which complete_one() makes.
    io_uring_submit(&ring_);
  }

  // Waits for a request to end and continues its transfer. False when the ring is broken.
  bool complete_one() {
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(&ring_, &completion) != 0) {
      const int code = io_uring_submit_and_wait(&ring_, 1);
      if (code < 0 && code != -EINTR && code != -EAGAIN && code != -EBUSY) return false;
    }
    const auto ticket = reinterpret_cast<Ticket>(io_uring_cqe_get_data(completion));
    const int moved = completion->res;
    io_uring_cqe_seen(&ring_, completion);
    --num_in_flight_;
    Transfer& transfer = transfers_.at(ticket);
    if (moved > 0) {
      transfer.done += static_cast<size_t>(moved);
    } else if (moved != -EINTR && moved != -EAGAIN) {
      transfer.code = moved < 0 ? -moved : EIO;  // the file has its full length: no early end
    }
    if (transfer.is_running()) submit(ticket);
    return true;
  }

  const IoFile file_;
  io_uring ring_;
  std::map<Ticket, Transfer> transfers_;
  int num_in_flight_ = 0;
  Ticket next_ = 0;
};

}  // namespace

std::unique_ptr<AsyncIo> make_uring_io(const IoFile& file, unsigned num_requests) {
  io_uring ring{};
  if (io_uring_queue_init(num_requests, &ring, 0) != 0) return nullptr;
  if (!has_read_and_write(ring)) {
    io_uring_queue_exit(&ring);
    return nullptr;
  }
  return std::make_unique<UringIo>(file, ring);
}

#else

std::unique_ptr<AsyncIo> make_uring_io(const IoFile&, unsigned) { return nullptr; }

#endif

}  // namespace trireme
