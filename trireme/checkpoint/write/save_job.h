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
#include "trireme/checkpoint/write/save_plan.h"
#include "trireme/checkpoint/write/shard_writer.h"
#include "trireme/checkpoint/write/snapshot.h"
#include "trireme/checkpoint/write/whole_checkpoints.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint::inline internal {

// Not thread safe: the halves may run in different threads, one after the other.
class SaveJob {
 public:
  // The first half. memory: where to copy this rank's bytes; null: finish() reads the tensors.
  // whole: of earlier saves; finish() adds this one.
  // Comm:       names and boxes
  // Collective: every rank of `world`
  // Throws:     as save()
  SaveJob(std::vector<SaveTarget> targets, int64_t step, std::span<const Entry> entries,
          const std::string& state, comm::Communicator& world, SnapshotMemory* memory,
          WholeCheckpoints& whole);
  // A save that is planned already. plan: the tensors with their boxes, each with the file of the
  // rank that writes it, no two boxes of a tensor in one file; only rank 0's is used. pieces: the
  // boxes of this rank's file. The target has neither sites nor replicas.
  SaveJob(SaveTarget target, int64_t step, std::map<std::string, TensorRecord> plan,
          std::vector<OwnPiece> pieces, std::string state, WholeCheckpoints& whole);

  // The second half, to one target after the other. Before that refuses what must not be saved:
  // replicas that differ, values that are not finite. group, lane: the same ranks. Files that other
  // sites keep too travel over `lane`. Removes what it wrote to a target that fails.
  void finish(comm::Communicator& group, comm::Communicator& lane);

  // From now on no options.on_wait is called.
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

  void take_pieces(std::span<const Entry> entries, const std::string& own_file);
  void take_replicas(std::vector<ReplicatedBox> boxes, std::span<const Entry> entries, int rank);
  void check(comm::Communicator& group);
  void write_and_commit(const SaveTarget& target, const Sites& sites, comm::Communicator& group,
                        comm::Communicator& lane);

  std::vector<SaveTarget> targets_;
  int64_t step_;
  std::string state_;        // rank 0's
  WholeCheckpoints& whole_;  // the leaders'
  std::map<std::string, TensorRecord> plan_;
  std::vector<OwnPiece> pieces_;
  std::vector<Replica> replicas_;
  bool is_checked_ = false;
};

}  // namespace trireme::checkpoint::inline internal
