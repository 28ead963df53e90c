// An owned file descriptor.
#pragma once

#include <utility>

#include <unistd.h>

namespace trireme {

// The destructor closes it. A negative descriptor means none.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // The caller closes it.
  int release() { return std::exchange(fd_, -1); }
  // Returns what ::close() returns, because writes that the kernel delayed may fail here. Returns 0
  // when there is none.
  int close() { return is_open() ? ::close(release()) : 0; }

 private:
  int fd_;
};

}  // namespace trireme
