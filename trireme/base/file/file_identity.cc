#include "trireme/base/file/file_identity.h"

#include <string>
#include <system_error>

#include <sys/stat.h>

namespace trireme {
namespace {

FileIdentity identity_in(const struct stat& status) { return {status.st_dev, status.st_ino}; }

}  // namespace

std::optional<FileIdentity> identity_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return identity_in(status);
}

std::optional<FileIdentity> identity_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return std::nullopt;
  return identity_in(status);
}

std::filesystem::path place_of(int descriptor) {
  std::error_code failure;
  const std::filesystem::path path =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), failure);
  // The kernel appends " (deleted)" to the old path.
  const bool is_there = !failure && identity_of(path) == identity_of(descriptor);
  return is_there ? path : std::filesystem::path();
}

}  // namespace trireme
