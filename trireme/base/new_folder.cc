#include "trireme/base/new_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Absolute, without links and without a slash at the end.
fs::path resolved(const fs::path& target) {
  const fs::path path = fs::weakly_canonical(fs::absolute(target));
  return path.has_filename() ? path : path.parent_path();
}

void check_is_free(const fs::path& target) {
  std::error_code ignored;
  if (!fs::exists(target, ignored)) return;
  TRIREME_CHECK(fs::is_directory(target, ignored), target.string(),
                " is a file; expected a folder that is new or empty: choose another");
  const fs::directory_iterator first(target, ignored);
  TRIREME_CHECK(first == fs::directory_iterator(), "folder ", target.string(),
                " is not empty (it holds ", first->path().filename().string(),
                "); expected a new or an empty one: choose another, or remove it first");
}

void check(const std::error_code& error, const char* what, const fs::path& path) {
  TRIREME_CHECK(!error, "cannot ", what, " ", path.string(), ": ", error.message(),
                "; choose another folder");
}

}  // namespace

NewFolder::NewFolder(const fs::path& target) : target_(resolved(target)) {
  check_is_free(target_);
  temporary_ = target_.parent_path() / ("." + target_.filename().string() + ".tmp");
  make();
  lock();
  try {
    clear();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

void NewFolder::make() {
  std::error_code error;
  fs::create_directories(temporary_, error);
  check(error, "make", temporary_);
}

void NewFolder::lock() {
  lock_ = ::open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check(lock_ < 0 ? std::error_code(errno, std::system_category()) : std::error_code(), "open",
        temporary_);
  // A file system without locks goes without.
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(lock_);
  throw ConfigError(concat(temporary_.string(), " is being written by another program, for ",
                           target_.string(), ": wait for it, or choose another folder"));
}

void NewFolder::clear() {
  std::error_code error;
  for (const fs::directory_entry& left : fs::directory_iterator(temporary_, error)) {
    fs::remove_all(left, error);
    check(error, "remove", left);
  }
  check(error, "read", temporary_);
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
  ::close(lock_);
}

void NewFolder::commit() {
  sync_folder(temporary_);
  std::error_code error;
  fs::rename(temporary_, target_, error);  // onto nothing, or an empty folder
  check(error, "make", target_);
  temporary_.clear();
  sync_folder(target_.parent_path());
}

}  // namespace trireme
