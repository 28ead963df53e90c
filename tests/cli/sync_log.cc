// Preloaded into the program by power_loss_test.py: logs what a process does to the files below
// SYNC_LOG_ROOT, each call after it succeeded, in one order over all processes. What the program
// reports as saved is logged before it is printed.
//
// A record is a line of words and, where the line's last word is a length, that many bytes behind
// it. Inodes stand for files and folders, names are in hexadecimal. The words of each record:
//   create FOLDER NAME INODE | mkdir FOLDER NAME INODE | link FOLDER NAME INODE
//   remove FOLDER NAME
//   rename FOLDER NAME FOLDER NAME | exchange FOLDER NAME FOLDER NAME
//   truncate INODE SIZE | write INODE OFFSET LENGTH | sync INODE | report LENGTH
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

template <typename Function>
Function* real(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
// The function that this library stands before.
#define REAL(name) (real(static_cast<decltype(::name)*>(nullptr), #name))

std::string& root() {
  static std::string folder = [] {
    const char* value = std::getenv("SYNC_LOG_ROOT");
    return value != nullptr ? std::string(value) : std::string();
  }();
  return folder;
}

void log(const std::string& line, const void* data = nullptr, size_t num_bytes = 0) {
  static const int fd = [] {
    const char* path = std::getenv("SYNC_LOG");
    return path == nullptr
               ? -1
               : static_cast<int>(syscall(SYS_openat, AT_FDCWD, path,
                                          O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  }();
  std::string record = line + "\n";
  record.append(static_cast<const char*>(data), num_bytes);
  // One call: the kernel appends it whole.
  if (fd < 0 ||
      syscall(SYS_write, fd, record.data(), record.size()) != static_cast<long>(record.size()))
    abort();
}

bool is_below_root(const std::string& path) {
  return !root().empty() &&
         (path == root() || path.compare(0, root().size() + 1, root() + "/") == 0);
}

// Of an open descriptor; empty when it is not below the root.
std::string path_of(int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof(path));
  const std::string result(path, length > 0 ? static_cast<size_t>(length) : 0);
  return is_below_root(result) ? result : "";
}

std::string inode_of(int fd) {
  struct stat status {};
  fstat(fd, &status);
  return std::to_string(status.st_ino);
}

std::string in_hexadecimal(const std::string& text) {
  std::string digits;
  char two[3];
  for (const char c : text) {
    std::snprintf(two, sizeof(two), "%02x", static_cast<unsigned char>(c));
    digits += two;
  }
  return digits;
}

// A name in a folder below the root.
struct Place {
  std::string folder;  // inode; empty: elsewhere
  std::string name;
  std::string words() const { return folder + " " + in_hexadecimal(name); }
};

Place place_of(int at, const char* path) {
  std::string text = path;
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  const size_t slash = text.rfind('/');
  const std::string parent = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : text.substr(0, slash);
  const int fd =
      static_cast<int>(syscall(SYS_openat, at, parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (fd < 0) return {};
  Place place;
  if (!path_of(fd).empty())
    place = {inode_of(fd), slash == std::string::npos ? text : text.substr(slash + 1)};
  close(fd);
  return place;
}

bool exists(int at, const char* path) {
  return faccessat(at, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void log_opened(int fd, const Place& place, bool existed, bool truncates) {
  if (!existed) {
    log("create " + place.words() + " " + inode_of(fd));
  } else if (truncates) {
    log("truncate " + inode_of(fd) + " 0");
  }
}

int open_logged(int at, const char* path, int flags, mode_t mode) {
  const bool is_temporary = (flags & O_TMPFILE) == O_TMPFILE;
  const bool changes = !is_temporary && (flags & (O_CREAT | O_TRUNC)) != 0;
  const Place place = changes ? place_of(at, path) : Place();
  const bool existed = place.folder.empty() || exists(at, path);
  const int fd = REAL(openat)(at, path, flags, mode);
  if (fd >= 0 && !place.folder.empty()) log_opened(fd, place, existed, (flags & O_TRUNC) != 0);
  return fd;
}

FILE* fopen_logged(const char* path, const char* mode) {
  const Place place = mode[0] == 'r' ? Place() : place_of(AT_FDCWD, path);
  const bool existed = place.folder.empty() || exists(AT_FDCWD, path);
  FILE* file = REAL(fopen)(path, mode);
  if (file != nullptr && !place.folder.empty())
    log_opened(fileno(file), place, existed, mode[0] == 'w');
  return file;
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

void log_written(int fd, const void* data, ssize_t num_bytes, off_t offset) {
  if (num_bytes <= 0 || path_of(fd).empty()) return;
  // An append knows where it went only afterwards.
  if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - num_bytes;
  log("write " + inode_of(fd) + " " + std::to_string(offset) + " " + std::to_string(num_bytes),
      data, static_cast<size_t>(num_bytes));
}

int sync_logged(int fd, int (*sync)(int)) {
  const int result = sync(fd);
  if (result == 0 && !path_of(fd).empty()) log("sync " + inode_of(fd));
  return result;
}

int rename_logged(int from_at, const char* from, int to_at, const char* to, unsigned flags) {
  const Place source = place_of(from_at, from), target = place_of(to_at, to);
  const int result = static_cast<int>(syscall(SYS_renameat2, from_at, from, to_at, to, flags));
  if (result == 0 && (!source.folder.empty() || !target.folder.empty())) {
    log(std::string((flags & RENAME_EXCHANGE) != 0 ? "exchange " : "rename ") + source.words() +
        " " + target.words());
  }
  return result;
}

int remove_logged(int at, const char* path, int flags) {
  const Place place = place_of(at, path);
  const int result = static_cast<int>(syscall(SYS_unlinkat, at, path, flags));
  if (result == 0 && !place.folder.empty()) log("remove " + place.words());
  return result;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_logged(AT_FDCWD, path, flags, mode);
}
int openat(int at, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_logged(at, path, flags, mode);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
int openat64(int at, const char* path, int flags, ...) __attribute__((alias("openat")));
int creat(const char* path, mode_t mode) {
  return open_logged(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}
FILE* fopen(const char* path, const char* mode) { return fopen_logged(path, mode); }
FILE* fopen64(const char* path, const char* mode) { return fopen_logged(path, mode); }

ssize_t write(int fd, const void* data, size_t num_bytes) {
  const ssize_t result = REAL(write)(fd, data, num_bytes);
  log_written(fd, data, result, -1);
  return result;
}
ssize_t pwrite(int fd, const void* data, size_t num_bytes, off_t offset) {
  const ssize_t result = REAL(pwrite)(fd, data, num_bytes, offset);
  log_written(fd, data, result, offset);
  return result;
}
ssize_t pwrite64(int fd, const void* data, size_t num_bytes, off_t offset)
    __attribute__((alias("pwrite")));
ssize_t writev(int fd, const iovec* parts, int count) {
  const ssize_t result = REAL(writev)(fd, parts, count);
  std::string data;
  for (int i = 0; i < count; ++i)
    data.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  log_written(fd, data.data(), result, -1);
  return result;
}
// What goes through io_uring calls nothing here: the program then uses pwrite() instead.
int io_uring_queue_init(unsigned /*entries*/, void* /*ring*/, unsigned /*flags*/) {
  return -ENOSYS;
}
int linkat(int from_at, const char* from, int to_at, const char* to, int flags) noexcept {
  const Place place = place_of(to_at, to);
  const int result = static_cast<int>(syscall(SYS_linkat, from_at, from, to_at, to, flags));
  struct stat status {};
  if (result == 0 && !place.folder.empty() &&
      fstatat(to_at, to, &status, AT_SYMLINK_NOFOLLOW) == 0) {
    log("link " + place.words() + " " + std::to_string(status.st_ino));
  }
  return result;
}
int link(const char* from, const char* to) noexcept {
  return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int ftruncate(int fd, off_t size) noexcept {
  const int result = REAL(ftruncate)(fd, size);
  if (result == 0 && !path_of(fd).empty())
    log("truncate " + inode_of(fd) + " " + std::to_string(size));
  return result;
}
int ftruncate64(int fd, off_t size) noexcept __attribute__((alias("ftruncate")));

int fsync(int fd) { return sync_logged(fd, REAL(fsync)); }
int fdatasync(int fd) { return sync_logged(fd, REAL(fdatasync)); }

int mkdir(const char* path, mode_t mode) noexcept {
  const Place place = place_of(AT_FDCWD, path);
  const int result = static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
  if (result == 0 && !place.folder.empty()) {
    struct stat status {};
    stat(path, &status);
    log("mkdir " + place.words() + " " + std::to_string(status.st_ino));
  }
  return result;
}
int rename(const char* from, const char* to) noexcept {
  return rename_logged(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) noexcept {
  return rename_logged(from_at, from, to_at, to, flags);
}
int unlink(const char* path) noexcept { return remove_logged(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept { return remove_logged(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int at, const char* path, int flags) noexcept {
  return remove_logged(at, path, flags);
}
int remove(const char* path) noexcept {
  return remove_logged(AT_FDCWD, path, 0) == 0 || remove_logged(AT_FDCWD, path, AT_REMOVEDIR) == 0
             ? 0
             : -1;
}

int printf(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char* text = nullptr;
  const int length = vasprintf(&text, format, arguments);
  va_end(arguments);
  if (length < 0) return length;
  if (std::string(text).find("saved   ") == 0 && !root().empty()) {
    log("report " + std::to_string(length), text, static_cast<size_t>(length));
  }
  const size_t written = fwrite(text, 1, static_cast<size_t>(length), stdout);
  free(text);
  return static_cast<int>(written);
}

}  // extern "C"
