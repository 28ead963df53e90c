#include "trireme/train/state/places.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/random/random.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/publish.h"
#include "trireme/checkpoint/transfer/site_checkpoints.h"
#include "trireme/comm/objects.h"

namespace trireme::train {

namespace fs = std::filesystem;
using checkpoint::Peers;

namespace {

// A run that has nothing more to save removes them now or never.
void remove_leftovers(const fs::path& root, int64_t epoch = 1) {
  if (fs::is_directory(root)) checkpoint::remove_leftovers(root, epoch);
}

}  // namespace

Places::Places(const RunConfig& config, comm::Communicator& world,
               const checkpoint::OnWait& on_wait)
    : Places(config, world) {  // from here on the destructor runs when something throws
  const auto mark = [&](const Peers&) {
    remove_leftovers(fs::path(config_.output.folder) / "checkpoints", config_.run_epoch);
    const RunMark run = mark_run(config_.output.folder);
    return run.id + '\n' + run.folder.string();
  };
  const std::string text = checkpoint::from_root(world_, mark, on_wait);
  run_id_ = text.substr(0, text.find('\n'));
  run_folder_ = text.substr(run_id_.size() + 1);
  add_memory(on_wait);
  if (!config_.checkpoint.local.empty()) add_local(on_wait);
}

Places::~Places() {
  if (!has_memory_ || !fast_.front().sites.leads()) return;
  const fs::path& root = fast_.front().root;
  std::error_code ignored;
  if (fs::is_empty(root, ignored) && !ignored) fs::remove_all(root.parent_path(), ignored);
}

void Places::add_memory(const checkpoint::OnWait& on_wait) {
  const RunMark mark{run_folder_, run_id_};
  // A folder that an ended run left there also counts, whatever this run does.
  const int64_t mine = config_.checkpoint.memory_interval > 0 || has_memory_folder(mark) ? 1 : 0;
  if (std::ranges::count(comm::all_gather_numbers(world_, mine), 1) == 0) return;
  checkpoint::run_or_throw(
      world_, [&](const Peers&) { held_memory_.emplace(hold_memory_folder(mark)); }, on_wait);
  const fs::path root = memory_folder(mark) / "checkpoints";
  fast_.push_back({"memory", root, checkpoint::find_sites(root, world_, on_wait)});
  has_memory_ = true;
  const checkpoint::Sites& sites = fast_.back().sites;
  const auto sign = [&](const Peers&) {
    sign_memory_folder(mark);
    remove_leftovers(root);
  };
  checkpoint::on_leaders(sites, world_, sign, on_wait);
  const int hosts = sites.size();
  replicas_ = config_.checkpoint.replicas;
  if (config_.is_elastic) replicas_ = std::min<int64_t>(replicas_, hosts - 1);
  TRIREME_CHECK(replicas_ < hosts, "checkpoint.replicas is ", replicas_, "; expected at most ",
                hosts - 1, ", because the ranks are on ", hosts, hosts == 1 ? " host" : " hosts");
}

void Places::add_local(const checkpoint::OnWait& on_wait) {
  // Several runs may have the same local folder.
  const fs::path root = fs::absolute(config_.checkpoint.local) /
                        concat(run_folder_.filename().string(), "-", run_id_.substr(0, 8));
  fast_.push_back({"local", root, checkpoint::find_sites(root, world_, on_wait)});
  const auto clean = [&](const Peers&) { remove_leftovers(root); };
  checkpoint::on_leaders(fast_.back().sites, world_, clean, on_wait);
}

std::vector<checkpoint::SaveTarget> Places::targets(const checkpoint::SaveOptions& options,
                                                    bool only_memory) const {
  std::vector<checkpoint::SaveTarget> targets;
  for (const FastPlace& place : fast_) {
    const bool is_memory = has_memory_ && &place == &fast_.front();
    if (is_memory ? config_.checkpoint.memory_interval == 0 : only_memory) continue;
    checkpoint::SaveOptions own = options;
    own.keep = 1;
    own.shared_roots.clear();
    own.epoch = 1;  // a host's agent ends its workers of one epoch before it begins another
    own.sites = place.sites;
    if (is_memory) {
      own.fsync = false;
      own.replicas = static_cast<int>(replicas_);
    }
    targets.push_back({place.root, std::move(own)});
  }
  if (!only_memory) targets.push_back({fs::path(config_.output.folder) / "checkpoints", options});
  return targets;
}

void Places::forget_memory() {
  if (!has_memory_) return;
  const fs::path folder = fast_.front().root.parent_path();
  const auto remove = [&](const Peers&) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  };
  checkpoint::on_leaders(fast_.front().sites, world_, remove);
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kMemory = "/dev/shm";
constexpr const char* kPrefix = "trireme-checkpoint-";
constexpr const char* kMarkFile = "run";
constexpr uint64_t kMostBytes = 64 << 10;
// Another run's removal of a large folder takes less.
constexpr std::chrono::seconds kRemovalPatience{60};

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

// The newest step of a checkpoint there, complete or not; -1 when there is none.
int64_t newest_step(const fs::path& checkpoints) {
  int64_t newest = -1;
  std::error_code ignored;
  for (const fs::directory_entry& item : fs::directory_iterator(checkpoints, ignored)) {
    newest = std::max(newest, checkpoint::step_of(item.path().filename().string()));
  }
  return newest;
}

// Whether the run in `folder` has a checkpoint as new as the newest in its `memory`.
bool is_overtaken(const fs::path& memory, const fs::path& folder) {
  const auto saved = checkpoint::latest(folder / "checkpoints");
  return saved &&
         newest_step(memory / "checkpoints") <= checkpoint::step_of(saved->filename().string());
}

// Whether the folder is of no use any more: its run was removed, or another one has its place, or
// it has a checkpoint as new. A file system that is not mounted now does not count.
bool is_stale(const fs::path& folder) {
  const std::string text = read_file(folder / kMarkFile, kMostBytes);
  const std::string id = first_line(text);
  if (id.size() == text.size()) return false;  // not complete yet
  const fs::path run = first_line(text.substr(id.size() + 1));
  if (!fs::exists(run.parent_path())) return false;
  if (!fs::exists(run / kIdFile) || first_line(read_file(run / kIdFile, kMostBytes)) != id) {
    return true;
  }
  return is_overtaken(folder, run);
}

void remove_stale() {
  std::error_code ignored;
  for (const fs::directory_entry& item : fs::directory_iterator(kMemory, ignored)) {
    if (!item.path().filename().string().starts_with(kPrefix)) continue;
    try {
      if (!distrust_of(item.path()).empty()) continue;
      const FolderLock alone(item.path());
      if (is_stale(item.path())) fs::remove_all(item.path(), ignored);
    } catch (const std::exception&) {  // held, without its mark, or removed meanwhile
    }
  }
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

FolderLock hold_memory_folder(const RunMark& mark) {
  const fs::path folder = memory_folder(mark);
  while (true) {
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
      throw Error(concat("cannot make ", folder.string(), ": ", std::strerror(errno)));
    const std::string distrust = distrust_of(folder);
    if (!fs::exists(fs::symlink_status(folder))) continue;  // another run has just removed it
    TRIREME_CHECK(distrust.empty(), folder.string(), " ", distrust,
                  "; remove it, or choose another output.folder");
    const auto found = identity_of(folder);
    try {
      FolderLock held(folder, kRemovalPatience, FolderLock::Kind::kShared);
      // Another run may just have removed what was there.
      if (held.is_in_place()) return held;
    } catch (const ConfigError&) {
      // It may have been removed before it was opened, and made anew since.
      if (found && identity_of(folder) == found) throw;
    }
  }
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
    if (has_memory_folder(mark) && is_overtaken(memory_folder(mark), folder)) {
      fs::remove_all(memory_folder(mark));
    }
  } catch (const std::exception&) {  // it stays, as after a kill
  }
}

}  // namespace trireme::train
