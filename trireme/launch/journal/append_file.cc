#include "trireme/launch/journal/append_file.h"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme::launch::inline internal {
namespace {

// Bytes written; fewer than asked for when errno says why.
size_t write_all(int fd, std::string_view bytes) {
  size_t done = 0;
  errno = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

// Whether the file does not end in a newline.
bool ends_within_a_line(int fd, uint64_t num_bytes) {
  char last = '\n';
  return num_bytes > 0 && ::pread(fd, &last, 1, static_cast<off_t>(num_bytes - 1)) == 1 &&
         last != '\n';
}

}  // namespace

AppendFile::AppendFile(std::filesystem::path path) : path_(std::move(path)) {}

bool AppendFile::try_open() {
  if (file_.is_open()) return true;
  std::error_code ignored;  // opening the file reports it
  std::filesystem::create_directories(path_.parent_path(), ignored);
  // No link: whoever may write to the folder could lead the output elsewhere.
  constexpr int kFlags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
  Descriptor file(::open(path_.c_str(), kFlags, 0666));
  struct stat status {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) return false;
  if (!S_ISREG(status.st_mode)) {
    errno = EINVAL;
    return false;
  }
  file_ = std::move(file);
  num_bytes_ = static_cast<uint64_t>(status.st_size);
  is_torn_ = ends_within_a_line(file_.get(), num_bytes_);
  return true;
}

void AppendFile::open() {
  if (!try_open()) {
    const int code = errno;
    throw Error(concat("cannot write ", path_.string(), ": ", std::strerror(code)));
  }
}

bool AppendFile::fail() {
  const int code = errno;
  ++num_lost_;
  if (!is_failing_) problem_ = concat("cannot write ", path_.string(), ": ", std::strerror(code));
  is_failing_ = true;
  return false;
}

bool AppendFile::append(std::string_view line) {
  if (!try_open()) return fail();
  std::string bytes;
  if (is_torn_) bytes = "\n";
  bytes += line;
  const size_t done = write_all(file_.get(), bytes);
  num_bytes_ += done;
  if (done > 0) is_torn_ = done < bytes.size() && bytes[done - 1] != '\n';
  if (done < bytes.size()) return fail();
  is_failing_ = false;
  return true;
}

int64_t AppendFile::take_lost() { return std::exchange(num_lost_, 0); }

std::string AppendFile::take_problem() { return std::exchange(problem_, {}); }

void AppendFile::rotate() {
  // If it cannot be renamed it goes on growing, which loses nothing.
  std::filesystem::path older = path_;
  older += ".1";
  if (::rename(path_.c_str(), older.c_str()) == 0) file_ = Descriptor();
  num_bytes_ = 0;
}

}  // namespace trireme::launch::inline internal
