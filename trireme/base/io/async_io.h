// Reads and writes of a file that proceed while the caller computes: by the kernel through Linux's
// io_uring, so that none of our threads wait, or by two threads.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace trireme {

enum class IoKind { kRead, kWrite };

// `num_bytes` of the file from `offset` on, into or from `data`, which must stay valid until the
// end.
struct IoRequest {
  IoKind kind = IoKind::kRead;
  uint64_t offset = 0;
  std::byte* data = nullptr;
  size_t num_bytes = 0;
};

// Not thread safe. Requests in flight have no order: a request that depends on another one must
// start after its end. The destructor waits for all requests, because the kernel still uses their
// memory.
class AsyncIo {
 public:
  using Ticket = uint64_t;

  virtual ~AsyncIo() = default;

  virtual Ticket start(const IoRequest& request) = 0;
  // Returns when all bytes are transferred. Call once per ticket.
  // Throws: Error with the reason, the file and the offset
  virtual void wait(Ticket ticket) = 0;
  // "io_uring" or "threads".
  virtual std::string name() const = 0;
};

// Offsets, lengths and memory of requests to a direct file must be multiples of this.
inline constexpr size_t kIoAlignment = 4096;

// Memory for them; `num_bytes` is a multiple too.
// Throws: std::bad_alloc
struct FreeBytes {
  void operator()(std::byte* data) const { std::free(data); }
};
using AlignedBytes = std::unique_ptr<std::byte, FreeBytes>;
AlignedBytes aligned_bytes(size_t num_bytes);

// The file for requests. `path` and `advice` appear in errors.
struct IoFile {
  int descriptor = -1;
  std::string path;
  // false: requests pass through the kernel's page cache, which is then cleared of their pages.
  bool is_direct = false;
  std::string advice{};  // "; what to do", or empty
};

// Makes requests to the file bypass the page cache if its file system can. The first kIoAlignment
// bytes of a file of `num_bytes` are read and written back to find out, as some file systems accept
// the flag and then refuse the requests.
bool make_direct(int descriptor, uint64_t num_bytes);

inline constexpr unsigned kUsualRequests = 16;

// Uses io_uring if the kernel, the container and the build support it and the file is direct; for
// other files io_uring would only use threads of its own. Otherwise, or on request, uses threads.
// num_requests: how many will be in flight at once, at most
std::unique_ptr<AsyncIo> make_async_io(const IoFile& file, bool use_uring = true,
                                       unsigned num_requests = kUsualRequests);

// Throws the Error of a request that failed with `code` at `offset`.
[[noreturn]] void throw_io_error(const IoFile& file, IoKind kind, uint64_t offset, int code);

// AsyncIo with two threads that call pread and pwrite. Works on every file and kernel.
class ThreadIo : public AsyncIo {
 public:
  explicit ThreadIo(IoFile file);
  ~ThreadIo() override;

  Ticket start(const IoRequest& request) override;
  void wait(Ticket ticket) override;
  std::string name() const override { return "threads"; }

 private:
  struct Outcome {
    bool is_done = false;
    int code = 0;         // errno; 0: success
    uint64_t offset = 0;  // where it failed
    IoKind kind = IoKind::kRead;
  };

  void work();
  Outcome transfer(const IoRequest& request) const;

  const IoFile file_;
  std::mutex mutex_;
  std::condition_variable wanted_, finished_;
  std::deque<std::pair<Ticket, IoRequest>> queue_;
  std::map<Ticket, Outcome> outcomes_;
  Ticket next_ = 0;
  bool is_stopping_ = false;
  std::array<std::thread, 2> threads_;  // one reads ahead while the other writes back
};

// Null if this program was built without liburing, or if the kernel is older than 5.6 or refuses,
// as it often does in containers.
// num_requests: how many will be in flight at once, at most
std::unique_ptr<AsyncIo> make_uring_io(const IoFile& file, unsigned num_requests = kUsualRequests);

}  // namespace trireme
