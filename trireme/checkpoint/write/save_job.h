// A save in two halves: the first needs the tensors as they are, the second may go on behind the
// training, in another thread.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/write/link_shared.h"
#include "trireme/checkpoint/write/patch_bases.h"
#include "trireme/checkpoint/write/save_plan.h"
#include "trireme/checkpoint/write/shard_writer.h"
#include "trireme/checkpoint/write/snapshot.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

// This process's record of its earlier saves. Not thread safe.
struct EarlierSaves {
  WholeCheckpoints whole;  // the leaders'
  PatchBases bases;
};

// Not thread safe: the halves may run in different threads, one after the other.
class SaveJob {
 public:
  // The first half. memory: where to copy this rank's bytes; null: finish() reads the tensors.
  // earlier: finish() adds this one. If rows that change can be told, the leaders make the new
  // folders already: which rows must be copied depends on the files that can be linked there.
  // Comm:       names and boxes
  // Collective: every rank of `world`
  // Throws:     as save()
  SaveJob(std::vector<SaveTarget> targets, int64_t step, std::span<const Entry> entries,
          const std::string& state, comm::Communicator& world, SnapshotMemory* memory,
          EarlierSaves& earlier);
  // A save that is planned already. plan: the tensors with their boxes, each with the file of the
  // rank that writes it, no two boxes of a tensor in one file; only rank 0's is used. pieces: the
  // boxes of this rank's file. The target has neither sites nor replicas.
  SaveJob(SaveTarget target, int64_t step, std::map<std::string, TensorRecord> plan,
          std::vector<OwnPiece> pieces, std::string state, EarlierSaves& earlier);

  // The second half, to one target after the other. First refuses data that must not be saved:
  // differing replicas and non-finite values. group, lane: the same ranks. Files that other sites
  // keep too travel over `lane`. Removes what it wrote to a target that fails.
  void finish(comm::Communicator& group, comm::Communicator& lane);

  // Stops calls of options.on_wait.
  void be_quiet() {
    for (SaveTarget& target : targets_) target.options.on_wait = {};
  }

  // Whether finish() has found nothing to refuse; its later errors are those of disks and peers.
  bool is_checked() const { return is_checked_; }
  int64_t step() const { return step_; }
  // In the last target.
  std::filesystem::path folder() const;

 private:
  // A box that several ranks hold.
  struct Replica {
    ReplicatedBox box;
    std::optional<size_t> piece{};  // that this rank stores
    std::string digest;             // of this rank's values, unless it stores them
  };

  std::filesystem::path temporary_of(const SaveTarget& target) const;
  std::filesystem::path folder_of(const SaveTarget& target) const;
  // Links earlier files into the target's new folder with link_shared().
  std::string link(const SaveTarget& target);
  void link_early(std::span<const Entry> entries, comm::Communicator& world);
  void take_pieces(std::span<const Entry> entries, const std::string& own_file);
  void take_rows(std::span<const Entry> entries, std::span<const ReplicatedBox> compared);
  // Removes new folders that were made early, from target `first` on. No rank must be writing.
  void drop_folders(size_t first, const comm::Communicator& world) const;
  void take_replicas(std::vector<ReplicatedBox> boxes, std::span<const Entry> entries, int rank);
  void check(comm::Communicator& group);
  SharedFiles shared_with(const std::filesystem::path& root, const std::string& linked) const;
  Manifest write_files(const std::filesystem::path& folder, const SharedFiles& shared,
                       const ShardOptions& options, const std::string& own_file,
                       const Peers& peers) const;
  void write_and_commit(size_t number, const Sites& sites, comm::Communicator& group,
                        comm::Communicator& lane);

  std::vector<SaveTarget> targets_;
  int64_t step_;
  std::string state_;  // rank 0's
  EarlierSaves& earlier_;
  int64_t save_ = 0;                 // its number
  std::vector<std::string> linked_;  // by target: what was linked before the copy; "": nothing yet
  ChangeMarks marks_;                // of the values that are stored
  std::map<std::string, TensorRecord> plan_;
  std::vector<OwnPiece> pieces_;
  std::vector<Replica> replicas_;
  bool is_checked_ = false;
};

}  // namespace trireme::checkpoint
