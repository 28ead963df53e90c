#include "trireme/checkpoint/publish.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include <fcntl.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::checkpoint::inline internal {
namespace {

namespace fs = std::filesystem;

// Folders with this prefix are never checkpoints; they are being written or removed.
constexpr std::string_view kHiddenPrefix = ".step-";

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  throw Error(
      concat("cannot rename ", from.string(), " to ", to.string(), ": ", std::strerror(errno)));
}

// First hides the folder, durably, so that a half-removed checkpoint is never taken for one.
void remove_checkpoint(const fs::path& folder, bool fsync) {
  const fs::path hidden =
      folder.parent_path() / concat(".", folder.filename().string(), ".removed");
  rename_or_throw(folder, hidden);
  if (fsync) sync_folder(folder.parent_path());
  fs::remove_all(hidden);
}

// Renames `temporary` to `final`. At this moment the checkpoint comes into being.
void publish(const fs::path& temporary, const fs::path& final, bool fsync) {
  if (fs::exists(fs::symlink_status(final))) {
    // Swaps old and new in one step if the file system can.
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) == 0) {
      if (fsync) sync_folder(final.parent_path());
      fs::remove_all(temporary);
      return;
    }
    remove_checkpoint(final, fsync);
  }
  rename_or_throw(temporary, final);
}

}  // namespace

fs::path temporary_folder(const fs::path& root, int64_t step) {
  return root / concat(".", folder_name(step), ".tmp");
}

void remove_leftovers(const fs::path& root) {
  for (const auto& item : fs::directory_iterator(root)) {
    if (item.path().filename().string().starts_with(kHiddenPrefix)) fs::remove_all(item.path());
  }
}

fs::path prepare_temporary(const fs::path& root, int64_t step) {
  make_folders(root);
  remove_leftovers(root);
  const fs::path temporary = temporary_folder(root, step);
  fs::create_directory(temporary);
  return temporary;
}

void commit(const fs::path& root, const fs::path& temporary, const Manifest& manifest, bool fsync) {
  const std::string text = to_text(manifest);
  // A checkpoint that readers would refuse must not replace a good one.
  parse_and_check_manifest(text, temporary / kManifestName);
  OutputFile file(temporary / kManifestName);
  file.write(text);
  if (fsync) file.sync();
  file.close();
  if (fsync) sync_folder(temporary);
  publish(temporary, root / folder_name(manifest.step), fsync);
  if (fsync) sync_folder(root);
}

void remove_old(const fs::path& root, int64_t newest, const SaveOptions& options) {
  if (options.keep <= 0) return;
  std::vector<fs::path> folders = list(root);
  std::erase(folders, root / folder_name(newest));
  for (size_t i = 0; i + static_cast<size_t>(options.keep) <= folders.size(); ++i) {
    try {
      remove_checkpoint(folders[i], options.fsync);
    } catch (const std::exception&) {
    }
  }
}

}  // namespace trireme::checkpoint::inline internal
