// A save in two halves: the first needs the tensors as they are, the second may go on behind the
// training, in another thread.
#pragma once

#include <filesystem>
#include <map>
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
  // whole: of earlier saves; finish() reads it and adds this one.
  // Refuses what must not be saved: replicas that differ, values that are not finite.
  // Comm:       names, boxes and digests
  // Collective: every rank of `world`
  // Throws:     as save()
  SaveJob(std::filesystem::path root, int64_t step, std::span<const Entry> entries,
          const std::string& state, comm::Communicator& world, const SaveOptions& options,
          SnapshotMemory* memory, WholeCheckpoints& whole);

  // The second half. group: the same ranks. Removes what it wrote if it fails.
  void finish(comm::Communicator& group);

  // From now on options.on_wait is not called.
  void be_quiet() { options_.on_wait = {}; }

  int64_t step() const { return step_; }
  std::filesystem::path folder() const;

 private:
  void take_pieces(std::span<const Entry> entries, const std::string& own_file);
  void write_and_commit(comm::Communicator& group);

  std::filesystem::path root_;
  int64_t step_;
  std::string state_;
  SaveOptions options_;
  WholeCheckpoints& whole_;  // rank 0's
  std::filesystem::path temporary_;
  std::map<std::string, TensorRecord> plan_;
  std::vector<OwnPiece> pieces_;
};

}  // namespace trireme::checkpoint::inline internal
