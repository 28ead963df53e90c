#include "trireme/base/io/uring_io.h"

#ifdef TRIREME_HAVE_URING

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include <liburing.h>

namespace trireme::inline internal {
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

}  // namespace trireme::inline internal

#else

namespace trireme::inline internal {

std::unique_ptr<AsyncIo> make_uring_io(const IoFile&, unsigned) { return nullptr; }

}  // namespace trireme::inline internal

#endif
