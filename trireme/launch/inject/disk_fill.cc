#include "trireme/launch/inject/disk_fill.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme::launch::inline internal {
namespace {

[[noreturn]] void fail(const std::filesystem::path& folder, int code) {
  throw Error(concat("cannot fill the disk of ", folder.string(), ": ", std::strerror(code)));
}

}  // namespace

DiskFill::DiskFill(const std::filesystem::path& folder, int64_t max_bytes) {
  struct statvfs system {};
  if (::statvfs(folder.c_str(), &system) != 0) fail(folder, errno);
  const auto block = static_cast<int64_t>(system.f_frsize);
  const auto num_free = static_cast<int64_t>(system.f_bavail) * block;
  if (num_free > max_bytes) {
    throw Error(concat("refuses to fill the disk of ", folder.string(), ": ", num_free,
                       " bytes are free, expected at most ", max_bytes,
                       "; put the run on a small file system"));
  }
  std::string name = (folder / ".trireme-fill-XXXXXX").string();
  file_ = Descriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (!file_.is_open()) fail(folder, errno);
  ::unlink(name.c_str());
  // Large pieces while they fit, then smaller ones: what statvfs() says may not be exact.
  for (int64_t piece = num_free; piece >= block;) {
    const int code = ::fallocate(file_.get(), 0, num_bytes_, piece) == 0 ? 0 : errno;
    if (code == 0) {
      num_bytes_ += piece;
      if (num_bytes_ >= max_bytes) break;
    } else if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
      piece /= 2;
    } else if (code != EINTR) {
      fail(folder, code);
    }
  }
}

}  // namespace trireme::launch::inline internal
