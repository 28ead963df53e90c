// Reads and writes of a file that go on while the caller computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace trireme::train {

enum class IoKind { kRead, kWrite };

// `num_bytes` of the file from `offset` on, into or from `data`, which stays until the end.
struct IoRequest {
  IoKind kind = IoKind::kRead;
  uint64_t offset = 0;
  std::byte* data = nullptr;
  size_t num_bytes = 0;
};

// Not thread-safe. Requests in flight at one time are in no order: one that must see another's
// bytes starts after its end. The destructor waits for them, since the kernel still uses their
// memory.
class AsyncIo {
 public:
  using Ticket = uint64_t;

  virtual ~AsyncIo() = default;

  virtual Ticket start(const IoRequest& request) = 0;
  // Returns when all bytes are transferred. Once a ticket.
  // Throws: Error with the reason, the file and the offset
  virtual void wait(Ticket ticket) = 0;
  // "io_uring" or "threads".
  virtual std::string name() const = 0;
};

// A file that requests go to. `path` appears in errors.
struct IoFile {
  int descriptor = -1;
  std::string path;
  // false: the kernel's page cache lies between; what passed is dropped from it.
  bool is_direct = false;
};

// io_uring where the kernel, the container and the build have it and the file is direct (else
// io_uring would only hand the request to threads of its own); threads otherwise or when asked.
std::unique_ptr<AsyncIo> make_async_io(const IoFile& file, bool use_uring = true);

// The Error of a request that failed with `code` at `offset`.
[[noreturn]] void throw_io_error(const IoFile& file, IoKind kind, uint64_t offset, int code);

}  // namespace trireme::train
