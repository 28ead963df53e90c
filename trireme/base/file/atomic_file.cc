#include "trireme/base/file/atomic_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNumDigits = 8;
constexpr std::string_view kEnding = ".tmp";

[[noreturn]] void fail_for(std::string_view what, const fs::path& path) {
  const int code = errno;
  throw Error(concat(what, " ", path.string(), ": ", std::strerror(code)));
}

// The new file would take the place of a folder or a device.
fs::path check_replaceable(fs::path path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return path;
  errno = EISDIR;
  if (S_ISDIR(status.st_mode)) fail_for("cannot write", path);
  const char* kind = S_ISFIFO(status.st_mode) ? "a pipe" : "a device";
  throw Error(
      concat("cannot write ", path.string(), ": it is ", kind, "; expected a regular file"));
}

// Two processes that draw the same ones find out when they make the file.
std::string random_digits() {
  uint32_t bits = 0;
  if (::getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) throw Error("no random bytes");
  char digits[kNumDigits + 1];
  std::snprintf(digits, sizeof(digits), "%08x", bits);
  return digits;
}

std::string temporary_prefix(const fs::path& target) {
  return concat(".", target.filename().string(), ".");
}

bool is_temporary_of(std::string_view prefix, std::string_view name) {
  if (name.size() != prefix.size() + kNumDigits + kEnding.size()) return false;
  if (!name.starts_with(prefix) || !name.ends_with(kEnding)) return false;
  return std::ranges::all_of(name.substr(prefix.size(), kNumDigits), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

// Removes a file that no living process has locked. On a file system without locks it stays: its
// writer may be alive.
void remove_if_left(const fs::path& path) {
  const Descriptor file(
      ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.is_open() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
}

void remove_leftovers(const fs::path& target) {
  const std::string prefix = temporary_prefix(target);
  const fs::path folder = target.has_parent_path() ? target.parent_path() : ".";
  std::error_code failure;  // opening the file says more
  for (fs::directory_iterator item(folder, failure), end; !failure && item != end;
       item.increment(failure)) {
    if (is_temporary_of(prefix, item->path().filename().native())) remove_if_left(item->path());
  }
}

}  // namespace

AtomicFile::Temporary::Temporary(const fs::path& target) {
  remove_leftovers(target);
  for (;;) {
    path = target.parent_path() / concat(temporary_prefix(target), random_digits(), kEnding);
    lock = Descriptor(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!lock.is_open()) {
      if (errno == EEXIST) continue;
      fail_for("cannot write", target);
    }
    ::flock(lock.get(), LOCK_EX | LOCK_NB);
    // Another process may have taken it for a leftover before it was locked.
    struct stat status {};
    if (::fstat(lock.get(), &status) == 0 && status.st_nlink > 0) return;
  }
}

AtomicFile::Temporary::Temporary(const Continued& continued) : path(continued.place), stays(true) {
  const int mode = continued.num_bytes == 0 ? O_CREAT : 0;
  const Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | mode, 0666));
  struct stat status {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) fail_for("cannot write", path);
  if (static_cast<uint64_t>(status.st_size) < continued.num_bytes) {
    throw Error(concat("cannot go on with ", path.string(), ": it has ", status.st_size,
                       " bytes; expected at least ", continued.num_bytes));
  }
  if (::ftruncate(file.get(), static_cast<off_t>(continued.num_bytes)) != 0)
    fail_for("cannot write", path);
}

AtomicFile::Temporary::~Temporary() {
  if (!path.empty() && !stays) ::unlink(path.c_str());
}

AtomicFile::AtomicFile(const fs::path& path)
    : path_(check_replaceable(path)), temporary_(path_), file_(temporary_.path) {}

AtomicFile::AtomicFile(const fs::path& path, const Continued& continued)
    : path_(check_replaceable(path)),
      temporary_(continued),
      file_(temporary_.path, /*append=*/true) {}

void AtomicFile::complete() {
  if (is_complete_) return;
  file_.sync();
  file_.close();
  is_complete_ = true;
}

void AtomicFile::commit() {
  complete();
  if (::rename(temporary_.path.c_str(), path_.c_str()) != 0) fail_for("cannot rename to", path_);
  temporary_.path.clear();
  sync_folder(path_.has_parent_path() ? path_.parent_path() : ".");
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace trireme
