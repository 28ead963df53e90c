#include "trireme/train/state/memory_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/random/entropy.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/transfer/site_checkpoints.h"

namespace trireme::train::inline internal {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMemory = "/dev/shm";
constexpr const char* kPrefix = "trireme-checkpoint-";
constexpr const char* kIdFile = "run_id";
constexpr const char* kMarkFile = "run";
constexpr uint64_t kMostBytes = 64 << 10;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Why another user may have written the folder; "" when none can have.
std::string distrust_of(const fs::path& folder) {
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) return std::strerror(errno);
  if (!S_ISDIR(status.st_mode)) return "is not a folder";
  if (status.st_uid != geteuid())
    return concat("belongs to user ", status.st_uid, ", and this process runs as ", geteuid());
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) return "is open to other users";
  return "";
}

// Whether the run that made the folder is gone: another one has its place, or it was removed. A
// file system that is not mounted now does not count.
bool is_stale(const fs::path& folder) {
  const std::string text = read_file(folder / kMarkFile, kMostBytes);
  const std::string id = first_line(text);
  if (id.size() == text.size()) return false;  // not complete yet
  const fs::path run = first_line(text.substr(id.size() + 1));
  if (!fs::exists(run.parent_path())) return false;
  return !fs::exists(run / kIdFile) || first_line(read_file(run / kIdFile, kMostBytes)) != id;
}

void remove_stale() {
  std::error_code ignored;
  for (const fs::directory_entry& item : fs::directory_iterator(kMemory, ignored)) {
    if (!item.path().filename().string().starts_with(kPrefix)) continue;
    try {
      if (distrust_of(item.path()).empty() && is_stale(item.path()))
        fs::remove_all(item.path(), ignored);
    } catch (const Error&) {  // without its mark, or removed meanwhile by another rank
    }
  }
}

// The newest step of a checkpoint there, complete or not; -1 when there is none.
int64_t newest_step(const fs::path& checkpoints) {
  int64_t newest = -1;
  std::error_code ignored;
  for (const fs::directory_entry& item : fs::directory_iterator(checkpoints, ignored)) {
    newest = std::max(newest, checkpoint::step_of(item.path().filename().string()));
  }
  return newest;
}

}  // namespace

RunMark mark_run(const fs::path& folder) {
  const fs::path file = folder / kIdFile;
  if (!fs::exists(file)) write_file_atomically(file, unique_name() + "\n");
  return {fs::canonical(folder), first_line(read_file(file, kMostBytes))};
}

fs::path memory_folder(const RunMark& mark) {
  const std::string text = mark.id + '\n' + mark.folder.string() + '\n';
  return fs::path(kMemory) / (kPrefix + checksum(std::as_bytes(std::span(text))));
}

void make_memory_folder(const RunMark& mark) {
  const fs::path folder = memory_folder(mark);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw Error(concat("cannot make ", folder.string(), ": ", std::strerror(errno)));
  const std::string distrust = distrust_of(folder);
  TRIREME_CHECK(distrust.empty(), folder.string(), " ", distrust,
                "; remove it, or choose another output.folder");
}

void sign_memory_folder(const RunMark& mark) {
  write_file_atomically(memory_folder(mark) / kMarkFile,
                        mark.id + '\n' + mark.folder.string() + '\n');
  remove_stale();
}

bool has_memory_folder(const RunMark& mark) { return distrust_of(memory_folder(mark)).empty(); }

std::string newest_in_memory(const fs::path& folder) {
  try {
    if (!fs::exists(folder / kIdFile)) return "nothing";
    const RunMark mark = mark_run(folder);
    if (!has_memory_folder(mark)) return "nothing";
    const auto newest = checkpoint::latest(memory_folder(mark) / "checkpoints");
    if (!newest) return "nothing";
    return concat("step ", checkpoint::step_of(newest->filename().string()), ", ",
                  checkpoint::age_of(*newest).count(), " s old");
  } catch (const std::exception&) {  // the run's folder may be gone too
    return "nothing";
  }
}

void forget_overtaken_memory(const fs::path& folder) noexcept {
  try {
    if (!fs::exists(folder / kIdFile)) return;
    const RunMark mark = mark_run(folder);
    const auto saved = checkpoint::latest(folder / "checkpoints");
    if (!saved || !has_memory_folder(mark)) return;
    const int64_t step = checkpoint::step_of(saved->filename().string());
    if (newest_step(memory_folder(mark) / "checkpoints") <= step) {
      fs::remove_all(memory_folder(mark));
    }
  } catch (const std::exception&) {  // it stays, as after a kill
  }
}

}  // namespace trireme::train::inline internal
