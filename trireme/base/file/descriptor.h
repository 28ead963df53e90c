// A file descriptor with an owner.
#pragma once

#include <utility>

#include <unistd.h>

namespace trireme {

// Closed by the destructor; a negative one is none.
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
  // Whoever calls closes it.
  int release() { return std::exchange(fd_, -1); }
  // Returns what ::close() does: what the kernel held back until now may fail. 0 for none.
  int close() { return is_open() ? ::close(release()) : 0; }

 private:
  int fd_;
};

}  // namespace trireme
