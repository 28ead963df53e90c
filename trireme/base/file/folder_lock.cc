#include "trireme/base/file/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/file/file_identity.h"

namespace trireme::inline internal {
namespace {

constexpr std::chrono::milliseconds kSlice(20);

// False when another holder has the lock.
bool lock(int folder) { return ::flock(folder, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder, std::chrono::milliseconds patience)
    : path_(folder), folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  TRIREME_CHECK(folder_.is_open(), "cannot open ", folder.string(), ": ", std::strerror(errno),
                "; choose another folder");
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!lock(folder_.get())) {
    if (std::chrono::steady_clock::now() >= end) {
      throw ConfigError(concat(folder.string(),
                               " is being written by another program: wait for "
                               "it, or choose another folder"));
    }
    std::this_thread::sleep_for(kSlice);
  }
}

bool FolderLock::is_in_place() const {
  errno = 0;
  const auto found = identity_of(path_);
  if (found) return found == identity_of(folder_.get());
  return errno != ENOENT && errno != ENOTDIR;  // on other errors the path may be back in a moment
}

std::filesystem::path FolderLock::place() const { return place_of(folder_.get()); }

}  // namespace trireme::inline internal
