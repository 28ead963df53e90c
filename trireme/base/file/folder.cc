#include "trireme/base/file/folder.h"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme {
namespace {

constexpr std::chrono::milliseconds kSlice(20);

// False when another holder has the lock.
bool lock(int folder, FolderLock::Kind kind) {
  const int operation = kind == FolderLock::Kind::kShared ? LOCK_SH : LOCK_EX;
  return ::flock(folder, operation | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder, std::chrono::milliseconds patience,
                       Kind kind)
    : path_(folder), folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  TRIREME_CHECK(folder_.is_open(), "cannot open ", folder.string(), ": ", std::strerror(errno),
                "; choose another folder");
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!lock(folder_.get(), kind)) {
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

namespace {

namespace fs = std::filesystem;

constexpr int kMostAttempts = 100;

void check(const std::error_code& error, const char* what, const fs::path& path) {
  TRIREME_CHECK(!error, "cannot ", what, " ", path.string(), ": ", error.message(),
                "; choose another output");
}

}  // namespace

WorkFolder::WorkFolder(const fs::path& target, Left left) {
  const fs::path place = fs::absolute(target);
  const fs::path work = place.parent_path() / ("." + place.filename().string() + ".tmp");
  path_ = work;
  try {
    lock();
  } catch (...) {
    path_.clear();  // another's
    throw;
  }
  if (left == Left::kRemoved) clear();
}

void WorkFolder::lock() {
  for (int attempts_left = kMostAttempts;; --attempts_left) {
    std::error_code error, ignored;
    fs::create_directories(path_, error);
    const fs::file_type type = fs::symlink_status(path_, ignored).type();
    // Clearing it would remove what is at the other end.
    TRIREME_CHECK(type != fs::file_type::symlink, path_.string(),
                  " is a link; expected a folder or nothing: remove it");
    const bool may_vanish = type == fs::file_type::not_found || type == fs::file_type::directory;
    if (error == std::errc::file_exists && may_vanish && attempts_left > 0) continue;
    check(error, "make", path_);
    try {
      lock_.emplace(path_);
    } catch (const ConfigError&) {
      if (attempts_left == 0) throw;
      continue;  // its holder may just be ending
    }
    if (lock_->is_in_place()) return;  // else the holder has renamed or removed it meanwhile
  }
}

void WorkFolder::clear() {
  std::error_code error;
  for (const fs::directory_entry& left : fs::directory_iterator(path_, error)) {
    fs::remove_all(left, error);
    check(error, "remove", left);
  }
  check(error, "read", path_);
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

namespace {

namespace fs = std::filesystem;

// Absolute, without links and without a slash at the end.
fs::path resolved(const fs::path& target) {
  const fs::path path = fs::weakly_canonical(fs::absolute(target));
  return path.has_filename() ? path : path.parent_path();
}

// Resolved.
fs::path free_place(const fs::path& path) {
  fs::path target = resolved(path);
  std::error_code ignored;
  if (!fs::exists(target, ignored)) return target;
  TRIREME_CHECK(fs::is_directory(target, ignored), target.string(),
                " is a file; expected a folder that is new or empty: choose another");
  const fs::directory_iterator first(target, ignored);
  TRIREME_CHECK(first == fs::directory_iterator(), "folder ", target.string(),
                " is not empty (it holds ", first->path().filename().string(),
                "); expected a new or an empty one: choose another, or remove it first");
  return target;
}

}  // namespace

NewFolder::NewFolder(const fs::path& target, WorkFolder::Left left)
    : target_(free_place(target)), work_(target_, left) {}

void NewFolder::commit() {
  sync_folder(path());
  std::error_code error;
  fs::rename(path(), target_, error);  // onto nothing, or an empty folder
  TRIREME_CHECK(!error, "cannot make ", target_.string(), ": ", error.message(),
                "; choose another folder");
  work_.release();
  sync_folder(target_.parent_path());
}

}  // namespace trireme
