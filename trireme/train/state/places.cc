#include "trireme/train/state/places.h"

#include <algorithm>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/checkpoint/publish.h"
#include "trireme/comm/objects.h"
#include "trireme/train/state/memory_folder.h"

namespace trireme::train::inline internal {

namespace fs = std::filesystem;
using checkpoint::Peers;

namespace {

// A run that has nothing more to save removes them now or never.
void remove_leftovers(const fs::path& root) {
  if (fs::is_directory(root)) checkpoint::remove_leftovers(root);
}

}  // namespace

Places::Places(const RunConfig& config, comm::Communicator& world,
               const checkpoint::OnWait& on_wait)
    : Places(config, world) {  // from here on the destructor runs when something throws
  const auto mark = [&](const Peers&) {
    remove_leftovers(fs::path(config_.output.folder) / "checkpoints");
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
  // Also what a run that has ended left there, whatever this one is to do.
  const int64_t mine = config_.checkpoint.memory_interval > 0 || has_memory_folder(mark) ? 1 : 0;
  if (std::ranges::count(comm::all_gather_numbers(world_, mine), 1) == 0) return;
  checkpoint::run_or_throw(
      world_, [&](const Peers&) { make_memory_folder(mark); }, on_wait);
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

}  // namespace trireme::train::inline internal
