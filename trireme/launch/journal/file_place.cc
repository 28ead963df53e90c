#include "trireme/launch/journal/file_place.h"

#include <algorithm>
#include <cerrno>

#include <sys/stat.h>
#include <unistd.h>

namespace trireme::launch {
namespace {

constexpr size_t kMarkBytes = 256;

// Fewer at the file's end, and when it cannot be read.
std::string bytes_at(int fd, uint64_t offset, size_t num_bytes) {
  std::string bytes(num_bytes, '\0');
  ssize_t count = 0;
  do {
    count = ::pread(fd, bytes.data(), num_bytes, static_cast<off_t>(offset));
  } while (count < 0 && errno == EINTR);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(0, count)));
  return bytes;
}

}  // namespace

bool FilePlace::is_in(int fd) const {
  return file_ && identity_of(fd) == file_ && bytes_at(fd, 0, head_.size()) == head_ &&
         bytes_at(fd, offset_ - before_.size(), before_.size()) == before_;
}

bool FilePlace::is_at_end_of(const std::filesystem::path& path) const {
  struct stat status {};
  return file_ && ::stat(path.c_str(), &status) == 0 &&
         file_ == FileIdentity{status.st_dev, status.st_ino} &&
         static_cast<uint64_t>(status.st_size) == offset_;
}

std::string FilePlace::read(int fd, size_t num_bytes) {
  if (!file_) file_ = identity_of(fd);
  std::string bytes = bytes_at(fd, offset_, num_bytes);
  offset_ += bytes.size();
  head_.append(bytes, 0, kMarkBytes - head_.size());
  before_.append(bytes, bytes.size() - std::min(bytes.size(), kMarkBytes));
  before_.erase(0, before_.size() - std::min(before_.size(), kMarkBytes));
  return bytes;
}

}  // namespace trireme::launch
