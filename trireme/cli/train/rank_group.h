// The group of a training run's ranks, and this rank's flight recorder.
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/cancellation.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/comm/rendezvous/rendezvous.h"
#include "trireme/train/config/config.h"

namespace trireme::cli::inline internal {

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

}  // namespace trireme::cli::inline internal
