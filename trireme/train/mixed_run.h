// A run whose embedding tables are on parameter servers, while workers train all other parameters
// synchronously. The last ranks are the servers; the others are an ordinary run.
// Source: Lian et al. 2022, "Persia: an open, hybrid system scaling deep learning-based
//         recommenders up to 100 trillion parameters", KDD, arXiv:2111.05897, section 4
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/server/state/key_ranges.h"
#include "trireme/train/config/config.h"
#include "trireme/train/server/served_tables.h"
#include "trireme/train/server/server_ranks.h"
#include "trireme/train/trainer.h"
#include "trireme/train/trainer_impl.h"

namespace trireme::train::inline internal {

// Not thread safe.
class MixedRun {
 public:
  // config: resolved, its data open.
  // Collective: every rank of `world`
  // Throws:     as Trainer's constructor
  MixedRun(RunConfig config, comm::Communicator& world, TrainObserver& observer,
           const ProfileOptions& profile);

  // Like Trainer::run().
  // Collective: every rank
  Outcome run(const std::function<bool()>& stop);

 private:
  RunConfig config_;
  comm::Communicator& world_;
  TrainObserver& observer_;
  ServerRanks servers_;
  std::vector<parallel::ServedParameter> tables_;
  std::shared_ptr<PulledRows> pulled_;    // on workers
  std::unique_ptr<TrainerImpl> trainer_;  // on workers
};

}  // namespace trireme::train::inline internal
