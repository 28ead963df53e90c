// The places where a run keeps checkpoints: its folder, and optionally memory and local disks, from
// which it restarts faster after a crash. docs/guide/resume.md says which place a start chooses.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/sites.h"
#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

// The folder of this host's memory in which a run keeps checkpoints. It belongs to no process, so
// it survives the ranks, even if all are killed, until the host's next boot at the latest.
// A run as its memory folder knows it.
struct RunMark {
  std::filesystem::path folder;  // absolute
  std::string id;                // random
};

// The mark of the run in `folder`. Its id is in the file `run_id` there, made by the first call; so
// a run that takes the place of a removed one has another.
// Throws: Error when the file cannot be read or written
inline constexpr const char* kIdFile = "run_id";
RunMark mark_run(const std::filesystem::path& folder);

// /dev/shm/trireme-checkpoint-…, a name that only this run has.
std::filesystem::path memory_folder(const RunMark& mark);

// Makes the run's memory folder, accessible only to this user. Every rank of a host may call it.
// While the result lives, no other run removes the folder.
// Throws: ConfigError when another user has a folder of this name, or may write in it; Error
[[nodiscard]] FolderLock hold_memory_folder(const RunMark& mark);

// Writes into the folder whose it is, and removes those of this user's runs that are of no use any
// more: nobody holds them, and their run is gone or has a checkpoint as new in its own folder. One
// rank of a host calls it.
void sign_memory_folder(const RunMark& mark);

// Whether the run has a memory folder here that no other user can have written.
bool has_memory_folder(const RunMark& mark);

// The newest checkpoint that the run in `folder` has in this host's memory, for the user: "step 48,
// 3 s old", or "nothing". Makes no file.
std::string newest_in_memory(const std::filesystem::path& folder);

// Removes what the run in `folder` has in this host's memory, unless a checkpoint there is newer
// than those in the folder. For a host that has no part in the run any more. Never throws.
void forget_overtaken_memory(const std::filesystem::path& folder) noexcept;

// A place other than the run's folder.
struct FastPlace {
  std::string name;  // for the user: "memory"
  std::filesystem::path root;
  checkpoint::Sites sites;
};

// Not thread safe. Every function that is not const is collective, except the destructor, which
// removes the memory folder of a run that has saved nothing there. `config` and `world` must
// outlive it.
class Places {
 public:
  // Finds out which ranks share memory and disks, and removes what interrupted saves have left.
  // Rank 0 has the lock of the run's folder.
  // Throws: on all ranks: ConfigError when there are too few hosts for checkpoint.replicas and the
  //         run is not elastic, or a folder may be another user's; Error when one cannot be made
  Places(const RunConfig& config, comm::Communicator& world, const checkpoint::OnWait& on_wait);

  ~Places();
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;

  // Faster ones first.
  const std::vector<FastPlace>& fast() const { return fast_; }

  // The targets of a checkpoint, in this order: all places, or only memory.
  std::vector<checkpoint::SaveTarget> targets(const checkpoint::SaveOptions& options,
                                              bool only_memory) const;

  // Removes what is in memory, because the run's folder has a newer checkpoint.
  void forget_memory();

 private:
  Places(const RunConfig& config, comm::Communicator& world) : config_(config), world_(world) {}
  void add_memory(const checkpoint::OnWait& on_wait);
  void add_local(const checkpoint::OnWait& on_wait);

  const RunConfig& config_;
  comm::Communicator& world_;
  std::filesystem::path run_folder_;
  std::string run_id_;
  std::optional<FolderLock> held_memory_;
  bool has_memory_ = false;  // then it is the first of fast_
  int64_t replicas_ = 0;     // of what is in memory
  std::vector<FastPlace> fast_;
};

}  // namespace trireme::train
