#include "trireme/checkpoint/publish.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/random/random.h"

namespace trireme::checkpoint {

// A checkpoint is a folder, and a folder cannot be written at once. So it is made under a name that
// no reader takes for one, and a rename gives it its name. The order is what survives a power loss:
// the files are on the disk, then the manifest that checks them, then the folder's entries, then
// the rename, then the parent's entry. Each step is synced before the next, because a file system
// may write them in any order. Removing is the same in reverse. The name goes first and its loss is
// synced; otherwise a power loss could bring back the name without the files. power_loss_test found
// that one. What cannot be removed is left under a hidden name, and nothing may depend on its
// absence.

namespace {

namespace fs = std::filesystem;

// Folders with this prefix are never checkpoints; they are being written or removed.
constexpr std::string_view kHiddenPrefix = ".step-";
constexpr std::string_view kTemporaryEnd = ".tmp";

// ".step-000050.tmp" -> "step-000050".
std::string without_hiding(const std::string& name) {
  return name.substr(1, name.find('.', 1) - 1);
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  throw Error(
      concat("cannot rename ", from.string(), " to ", to.string(), ": ", std::strerror(errno)));
}

// Removes as much as possible. fs::remove_all() stops at its first error, such as a mount, and
// would leave the rest of a large checkpoint. Of a link, only the link is removed.
void remove_what_can_be(const fs::path& path) {
  std::error_code failure, ignored;
  if (fs::is_directory(fs::symlink_status(path, ignored))) {
    for (fs::directory_iterator item(path, failure), end; !failure && item != end;
         item.increment(failure)) {
      fs::remove_all(item->path(), ignored);
    }
  }
  fs::remove(path, ignored);
}

// A free name that is not a checkpoint's. What could not be removed still has its old name.
fs::path hide(const fs::path& folder) {
  // Random, since a name that could not be removed is still taken.
  std::string name = folder.filename();
  if (name.starts_with('.')) name.erase(0, 1);
  fs::path hidden =
      folder.parent_path() / concat(".", name, ".", unique_name().substr(0, 8), ".removed");
  rename_or_throw(folder, hidden);
  return hidden;
}

// Removes what a writer of an earlier epoch has begun. It may have been stopped and go on any time,
// so the name goes first: then it finds no folder to write to or to commit.
void revoke(const fs::path& leftover) {
  try {
    remove_what_can_be(hide(leftover));
  } catch (const Error&) {  // it has just been committed, or is removed by another rank
    // Both are fine: what it did has happened or will be cleaned up.
  }
}

// At this moment the checkpoint comes into being.
void give_name(const fs::path& temporary, const fs::path& final, bool fsync) {
  if (fs::exists(fs::symlink_status(final))) {
    // Swaps old and new in one step if the file system can.
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) == 0) {
      // The exchange must be on the disk before the old files go: they are what a power loss would
      // come back to.
      if (fsync) sync_folder(final.parent_path());
      remove_what_can_be(temporary);
      return;
    }
    // Else there is a moment in which no checkpoint has the name. The old one's files stay until
    // the new one has it.
    const fs::path hidden = hide(final);
    rename_or_throw(temporary, final);
    if (fsync) sync_folder(final.parent_path());
    remove_what_can_be(hidden);
    return;
  }
  rename_or_throw(temporary, final);
}

}  // namespace

// Hidden first, so that a half-removed checkpoint is never taken for one.
void remove_checkpoint(const fs::path& folder, bool fsync) {
  const fs::path hidden = hide(folder);
  if (fsync) sync_folder(folder.parent_path());
  remove_what_can_be(hidden);
}

fs::path temporary_folder(const fs::path& root, int64_t step, int64_t epoch) {
  return root / concat(".", folder_name(step, epoch), kTemporaryEnd);
}

void remove_leftovers(const fs::path& root, int64_t epoch) {
  for (const auto& item : fs::directory_iterator(root)) {
    const std::string name = item.path().filename().string();
    // List entries that are not ours are left alone.
    if (!name.starts_with(kHiddenPrefix)) continue;
    const int64_t writer = epoch_of(without_hiding(name));
    // Its writer may still run; hiding the folder alone would let it commit.
    if (writer > 0 && writer < epoch && name.ends_with(kTemporaryEnd)) {
      revoke(item.path());
    } else if (writer <= epoch) {
      // Not of later epochs: their writers are at work.
      remove_what_can_be(item.path());
    }
  }
}

fs::path prepare_temporary(const fs::path& root, int64_t step, int64_t epoch) {
  make_folders(root);
  remove_leftovers(root, epoch);
  const fs::path temporary = temporary_folder(root, step, epoch);
  // A leftover that could not be removed is moved away, or its files would become part of this
  // checkpoint.
  if (!fs::create_directory(temporary)) {  // what is in it would be part of the checkpoint
    hide(temporary);
    fs::create_directory(temporary);
  }
  return temporary;
}

void commit(const fs::path& root, const fs::path& temporary, const Manifest& manifest, bool fsync) {
  const std::string text = to_text(manifest);
  // A checkpoint that readers would refuse must not replace a good one.
  // The manifest was made from reports of all ranks; it is read here as a reader will.
  parse_and_check_manifest(text, temporary / kManifestName);
  OutputFile file(temporary / kManifestName);
  file.write(text);
  // On the disk before the folder gets its name.
  if (fsync) file.sync();
  file.close();
  publish(temporary, fsync);
}

void publish(const fs::path& temporary, bool fsync) {
  const fs::path root = temporary.parent_path();
  if (fsync) sync_folder(temporary);
  give_name(temporary, root / without_hiding(temporary.filename().string()), fsync);
  if (fsync) sync_folder(root);
}

void remove_old(const fs::path& root, int64_t newest, const SaveOptions& options) {
  if (options.keep <= 0) return;
  std::vector<fs::path> folders = list(root);
  // Never the one that has just been saved, even if it is not the newest by step.
  std::erase(folders, root / folder_name(newest, options.epoch));
  std::erase_if(folders, [&](const fs::path& folder) {
    return epoch_of(folder.filename().string()) > options.epoch;
  });
  for (size_t i = 0; i + static_cast<size_t>(options.keep) <= folders.size(); ++i) {
    try {
      remove_checkpoint(folders[i], options.fsync);
    } catch (const std::exception&) {
      // The new checkpoint is safe. One that stays costs room and no more.
    }
  }
}

}  // namespace trireme::checkpoint
