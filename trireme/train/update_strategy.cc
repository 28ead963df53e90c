#include "trireme/train/update_strategy.h"

#include <algorithm>

#include "trireme/train/decoupled_learners.h"
#include "trireme/train/learner_updates.h"
#include "trireme/train/numerics/loss_sum.h"
#include "trireme/train/parameter_servers.h"
#include "trireme/train/teacher_ranks.h"

namespace trireme::train {
namespace {

// All ranks train one model.
class LocalUpdates final : public UpdateStrategy {
 public:
  explicit LocalUpdates(comm::Communicator& world) : world_(world) {}
  comm::Communicator& trainers() const override { return world_; }

 private:
  comm::Communicator& world_;
};

}  // namespace

Leave agree(comm::Communicator& ranks, const AskLeave& ask) {
  const std::vector<double> all = gather(ranks, {static_cast<double>(ask())});
  return static_cast<Leave>(std::ranges::max(all));
}

std::unique_ptr<UpdateStrategy> make_update_strategy(const RunConfig& config,
                                                     comm::Communicator& world,
                                                     TrainObserver& observer) {
  if (config.parallel.learners > 1 && config.outer.is_decoupled() && !config.outer.meets()) {
    return std::make_unique<DecoupledLearners>(config, world, observer);
  }
  if (config.parallel.learners > 1) {
    return std::make_unique<LearnerUpdates>(config, world, observer);
  }
  if (config.parallel.teachers > 0) return std::make_unique<TeacherRanks>(config, world, observer);
  if (config.parallel.servers == 0) return std::make_unique<LocalUpdates>(world);
  if (config.parallel.served == Served::kTables) {
    return std::make_unique<TableServers>(config, world, observer);
  }
  return std::make_unique<ParameterServers>(config, world, observer);
}

}  // namespace trireme::train
