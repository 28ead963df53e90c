// How the steps of a run change its weights: on the ranks that train, or on parameter servers; and
// what ranks do that do not train. The loop in trainer.cc asks the run's strategy wherever that
// makes a difference, and knows no kind of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/train/config/config.h"
#include "trireme/train/observer.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/state/step_part.h"
#include "trireme/train/state/training_state.h"

namespace trireme::train {

// Why a run leaves after a step. If ranks differ, the largest value counts.
enum class Leave {
  kNo,
  kAsked,       // it was asked to stop
  kFolderLost,  // its output folder is not in its place any more
};
// This rank's current answer.
using AskLeave = std::function<Leave()>;

// The answer of all ranks.
// Comm:       8 bytes per rank all-gathered
// Collective: every rank of `ranks`
Leave agree(comm::Communicator& ranks, const AskLeave& ask);

// Where a run, or its continuation, begins.
struct RunStart {
  int64_t step = 0;       // finished
  int64_t num_steps = 0;  // of the run; unknown on ranks that do not train
  int64_t optimizer_steps = 0;
  std::filesystem::path checkpoint{};       // that it goes on from; empty: a new run
  std::filesystem::path initial_weights{};  // of a new run; empty: drawn
};

// How far the ranks that train have come, when a checkpoint brings it together.
struct Meeting {
  int64_t step = 0;          // that all have finished
  Leave leave = Leave::kNo;  // the largest
  int64_t sum_of_steps = 0;  // of ranks that update servers apart from each other
  int64_t num_counted = 0;   // such ranks
};

// Not thread safe. A rank that trains calls the functions in this order: prepare(), start(),
// connect(), for each step those of a step, meet() for checkpoints, leave(), finish(). Any other
// calls prepare(), start(), serve(), finish(). Functions without another word are not collective.
class UpdateStrategy {
 public:
  virtual ~UpdateStrategy() = default;

  // The ranks that train; rank 0 of the world is their first.
  virtual comm::Communicator& trainers() const = 0;
  // Whether this rank is one of them.
  virtual bool trains() const { return true; }
  // Those whose mesh this rank is on.
  virtual comm::Communicator& mesh_ranks() const { return trainers(); }
  // Those that save and load checkpoints together, of which the model's mesh may be a part.
  virtual comm::Communicator& savers(const mesh::DeviceMesh& model) const { return model.world(); }
  // The ranks that do the work of ModelTraits::flops_per_sample.
  virtual int num_devices() const { return trainers().size(); }

  // Adds to the config how this rank's model finds rows that are elsewhere.
  virtual void prepare(RunConfig& /*config*/) {}
  // The mesh over which one copy of the model is laid out.
  // of_trainers: the mesh of all that train, used until the last step
  virtual const mesh::DeviceMesh& mesh_of_model(const mesh::DeviceMesh& of_trainers) {
    return of_trainers;  // NOLINT(bugprone-return-const-ref-from-parameter): it outlives the run
  }
  // The state is not built yet. It outlives the run.
  virtual void attach(TrainingState& /*state*/) {}
  // Hands out the weights, once those that train have loaded them.
  // state: null on ranks that do not train. Used until the last checkpoint.
  // start: that of rank 0 counts
  // Collective: every rank of the world
  // Throws:     ConfigError, CheckpointError, CommError
  virtual void start(const RunStart& /*start*/, TrainingState* /*state*/) {}
  // Waits for who is outside of the world, until they are there or `is_stopped` says so. After that
  // the run may have reached a later step.
  // Collective: every rank that trains
  virtual void connect(const std::function<bool()>& /*is_stopped*/) {}
  // Until the ranks that train have ended the run.
  virtual void serve() {}
  // After everything else. Returns what the world makes of this rank's outcome.
  // Collective: every rank of the world
  virtual Outcome finish(Outcome outcome) { return outcome; }

  // The functions of a step.

  // The ranks that are always in the same step as this one.
  virtual comm::Communicator& peers() const { return trainers(); }
  // Whether ranks outside of these may be in another step.
  virtual bool is_alone() const { return false; }
  // Whether all that train have met in the step that has ended.
  virtual bool has_met() const { return true; }
  // Begins to bring the weights here for step number `step`, from 1.
  virtual void begin_step(int64_t /*step*/) {}
  // Waits until they are here.
  virtual void await_weights() {}
  // The number of terms that the step's losses are over, for the mean that is reported. Tells the
  // model by how many its gradients are divided.
  // own: ParallelModel::begin_step()'s
  // Collective: every peer
  virtual int64_t count_terms(ParallelModel& /*model*/, int64_t own) { return own; }
  // The sums over the same terms, see ParallelModel::sums_over_batches().
  // Collective: every peer
  virtual std::vector<double> sums_over_batches(const ParallelModel& model,
                                                std::vector<double> mine, size_t /*num_batches*/) {
    return model.sums_over_batches(std::move(mine));
  }
  // The gradients of all microbatches are there, not yet clipped.
  // Collective: every peer
  virtual void end_backward() {}
  // What the step updates.
  virtual std::span<StepPart* const> parts(TrainingState& state) { return state.parts(); }
  // The factor from the norm of the parts' gradients to that of the step's mean gradient. Empty:
  // no rank has all of the gradient.
  virtual std::optional<double> norm_factor() const { return 1.0; }
  // Waits until the parts' updates are on their way.
  virtual void end_step() {}
  // The step after which this rank goes on, at the start and after each step: a later one where it
  // has taken what others have reached.
  // step: that it has finished
  virtual int64_t reached_step(int64_t step) const { return step; }
  // What an answer of the peers, the largest so far, means for the run now.
  virtual Leave settle(Leave of_peers) { return of_peers; }
  // Adds what the step has that others have not.
  virtual void add_metrics(StepMetrics& /*metrics*/) const {}
  // Of the last step: how long this rank waited for other ranks' weights and updates, beside what
  // the model says, and the bytes of gradients that it has sent.
  virtual std::chrono::nanoseconds waited() const { return {}; }
  virtual int64_t gradient_bytes(const ParallelModel& model) const {
    return model.gradient_bytes();
  }

  // Checkpoints.

  // Whether each rank has the whole model, so that rank 0 saves it for all.
  virtual bool root_saves() const { return false; }
  // Before a checkpoint in the middle of the run. If the result says that ranks leave, there is
  // none, and this rank leaves too.
  // Collective: every rank that trains, of which some may call leave() instead
  virtual Meeting meet(int64_t step, Leave leave) {
    return {.step = step, .leave = agree(trainers(), [leave] { return leave; })};
  }
  // After the last step of this rank.
  virtual Meeting leave(int64_t step, Leave leave) { return {.step = step, .leave = leave}; }
  // Brings the weights and states that the checkpoint holds into the state.
  // Only on rank 0, if root_saves()
  virtual void fetch(const Meeting& /*meeting*/) {}
  // A line for the user at the end; "": none
  virtual std::string report() const { return ""; }
};

// The strategy that the config asks for.
// config:     resolved, its data open; taken as it is now
// Collective: every rank of `world`, which must outlive the strategy, as must `observer`
std::unique_ptr<UpdateStrategy> make_update_strategy(const RunConfig& config,
                                                     comm::Communicator& world,
                                                     TrainObserver& observer);

}  // namespace trireme::train
