// Trains as one rank, and shows it on the terminal if this is rank 0: the group of the run's ranks,
// this rank's flight recorder, and waiting for a rank 0 of an earlier epoch that still has the
// run's folder.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/cancellation.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/comm/rendezvous/rendezvous.h"
#include "trireme/train/config/config.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {

class RunEvents;

// The group of a run's ranks, and this rank's flight recorder.
class RankGroup {
 public:
  // One rank that no launcher has started, without a network. Sets config.device.
  explicit RankGroup(train::RunConfig& config);
  // The rank that `info` describes, with its peers. Sets config.device. `cancellation`, when given,
  // ends the meeting and aborts the group.
  // Collective: every rank of the job
  // Throws:     as Rendezvous::connect()
  RankGroup(train::RunConfig& config, const comm::WorldInfo& info,
            const std::shared_ptr<comm::Cancellation>& cancellation = nullptr);

  comm::Communicator& world() { return *world_; }
  const std::shared_ptr<comm::Recorder>& recorder() const { return recorder_; }
  int num_local_ranks() const { return num_local_ranks_; }

 private:
  std::shared_ptr<comm::Recorder> recorder_;
  std::unique_ptr<comm::Rendezvous> rendezvous_;  // null: one rank. Rank 0's serves the store
  std::unique_ptr<comm::Communicator> world_;
  int num_local_ranks_ = 1;
};

struct FolderWait {
  std::filesystem::path folder;
  std::chrono::seconds patience{0};
  std::function<void(const std::string& line)> tell{};  // rank 0's: who has it; once
};

// Returns when rank 0 finds the folder free, or after the patience: then the run refuses it.
// Collective: every rank of `world`
// Throws:     CommError when a peer is lost meanwhile
void await_folder(const FolderWait& wait, comm::Communicator& world,
                  const checkpoint::OnWait& on_wait);

// Who holds the lock of `folder`, for people: "process 4242 of this host", or "a process of another
// host" when the kernel knows of none here.
std::string lock_holder(const std::filesystem::path& folder);

// A time between two changes of the job's ranks. A job without an agent has one.
struct Epoch {
  int64_t number = 1;
  std::string reason{};  // of a later one, for people
  // How long a rank 0 of the epoch before may still have the run's folder.
  std::chrono::seconds folder_patience{0};
  // The run's events, which rank 0 writes. Null: another process does.
  RunEvents* events = nullptr;
  // Called for each step that this rank has finished.
  std::function<void(int64_t step)> on_finished = nullptr;
  // Whether the ranks should finish their step, save and leave the epoch. Null: never.
  std::function<bool()> has_to_finish = nullptr;
  // Ends reads of the data too. Null: nothing does.
  std::shared_ptr<comm::Cancellation> cancellation = nullptr;
};

// Set by SIGTERM, SIGINT and SIGHUP (unless ignored, as under nohup) once stop_on_signals() was
// called.
extern const std::atomic<bool>& stop_requested;
void stop_on_signals();

// Trains with the ranks of `group` until the run ends, stop_requested is set or the epoch has to be
// finished; then finishes its step and saves.
// Throws: as Trainer
train::Outcome train_rank(const train::RunConfig& config, RankGroup& group,
                          const train::ProfileOptions& profile, const Epoch& epoch = {});

}  // namespace trireme::cli
