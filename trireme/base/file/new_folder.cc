#include "trireme/base/file/new_folder.h"

#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::inline internal {
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
  lock_.emplace(temporary_);
  clear();
}

void NewFolder::make() {
  std::error_code error;
  fs::create_directories(temporary_, error);
  check(error, "make", temporary_);
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
}

void NewFolder::commit() {
  sync_folder(temporary_);
  std::error_code error;
  fs::rename(temporary_, target_, error);  // onto nothing, or an empty folder
  check(error, "make", target_);
  temporary_.clear();
  sync_folder(target_.parent_path());
}

}  // namespace trireme::inline internal
