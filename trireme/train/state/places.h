// Where a run's checkpoints go: its folder, and before that memory and local disks, from which it
// starts faster after a crash. docs/resume.md says which is chosen.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/sites.h"
#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"

namespace trireme::train::inline internal {

// A place other than the run's folder.
struct FastPlace {
  std::string name;  // for the user: "memory"
  std::filesystem::path root;
  checkpoint::Sites sites;
};

// Not thread safe. Every function that is not const is collective, but for the destructor, which
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

  // Where a checkpoint goes, in this order: to all places, or to memory alone.
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
  bool has_memory_ = false;  // then it is the first of fast_
  int64_t replicas_ = 0;     // of what is in memory
  std::vector<FastPlace> fast_;
};

}  // namespace trireme::train::inline internal
