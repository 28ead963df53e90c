#include "trireme/base/io/scratch_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& folder, const ScratchUse& use, const std::string& reason) {
  throw ConfigError(concat(use.key, " ", folder.string(), " cannot be written: ", reason,
                           "; choose another with --", use.key, "=PATH"));
}

// Returns -1 and sets errno when it fails.
int open_unnamed(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return fd;
  // The file system has no unnamed files. The name is removed at once; the file is freed with its
  // last descriptor.
  std::string path = (folder / "states-XXXXXX").string();
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(path.c_str());
  return named;
}

[[noreturn]] void fail_full(const fs::path& folder, const ScratchUse& use, uint64_t num_bytes,
                            const std::string& reason) {
  throw ConfigError(concat(use.key, " ", folder.string(), " has no room for ", num_bytes,
                           " bytes, ", use.content, ": ", reason,
                           "; free space or choose another with --", use.key, "=PATH"));
}

// Allocates all space after `begin` now, so that a disk that is too small is an error before it is
// written to.
void preallocate(int fd, const fs::path& folder, const ScratchUse& use, uint64_t begin,
                 uint64_t num_bytes) {
  if (num_bytes == 0) return;
  struct statvfs status {};
  if (::fstatvfs(fd, &status) == 0) {
    // Check first, because trying would fill the disk for everyone until it fails.
    const uint64_t free_bytes = uint64_t{status.f_bavail} * status.f_frsize;
    if (free_bytes < num_bytes) {
      fail_full(folder, use, num_bytes, concat(free_bytes, " bytes are free"));
    }
  }
  const int code = reserve_space(fd, static_cast<int64_t>(begin), static_cast<int64_t>(num_bytes));
  if (code != 0) fail_full(folder, use, num_bytes, std::strerror(code));
}

}  // namespace

ScratchFile::ScratchFile(const fs::path& folder, uint64_t num_bytes, const ScratchUse& use)
    : folder_(folder), use_(use) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder, use, error.message());
  file_ = Descriptor(open_unnamed(folder));
  if (!file_.is_open()) fail(folder, use, std::strerror(errno));
  grow(num_bytes);
  io_ = {
      .descriptor = file_.get(),
      .path = (folder / "(unnamed file)").string(),
      .is_direct = use.direct && make_direct(file_.get(), num_bytes),
      .advice = concat("; the last checkpoint is intact: free space or replace the disk (or set ",
                       use.key, " to another), then the same command resumes")};
}

void ScratchFile::grow(uint64_t num_bytes) {
  preallocate(file_.get(), folder_, use_, num_bytes_, num_bytes);
  num_bytes_ += num_bytes;
}

}  // namespace trireme
