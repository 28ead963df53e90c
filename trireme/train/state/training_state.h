// Everything that training changes, and a checkpoint of it: the weights, the optimizer's states,
// the callbacks', and what the numerics carry from step to step.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/write/saver.h"
#include "trireme/comm/communicator.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/parallel/data/gradient_hook.h"
#include "trireme/train/callbacks/callbacks.h"
#include "trireme/train/config/config.h"
#include "trireme/train/numerics/bad_steps.h"
#include "trireme/train/numerics/gradient_noise.h"
#include "trireme/train/numerics/loss_scale.h"
#include "trireme/train/optimizer/optimizer.h"
#include "trireme/train/parallel/gradient_compression.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/run/bad_samples.h"
#include "trireme/train/state/frozen_model.h"
#include "trireme/train/state/places.h"
#include "trireme/train/state/run_state.h"
#include "trireme/train/state/saved_form.h"
#include "trireme/train/state/step_part.h"

namespace trireme::train {

// Not thread safe. All that it is made from must outlive it. Every function is collective: every
// rank of the world calls it.
class TrainingState {
 public:
  // mesh:  of one copy of the model
  // world: the ranks that save and load together, of which the mesh may be a part
  // overlap: see ParallelModel. on_wait: called while ranks wait for others' disks.
  TrainingState(const RunConfig& config, const mesh::DeviceMesh& mesh, comm::Communicator& world,
                Callbacks& callbacks, std::shared_ptr<const bool> overlap,
                checkpoint::OnWait on_wait);

  // Builds the model with the stages of the config, replacing an earlier one, and its optimizer.
  // Throws: ConfigError, CommError; as FrozenModel::load()
  void build();

  // Called at the end of each build(), with the form that checkpoints have from then on; null: the
  // state's own. It must outlive the state or the next build().
  void use_forms(std::function<SavedForm*()> make) { make_form_ = std::move(make); }

  // Fills in all of it from a checkpoint, which may come from another layout. Returns the run's
  // position. place: where it lies, if it is not in the run's folder; what other hosts have of it
  // is brought here.
  // Throws: CheckpointError
  RunState load(const std::filesystem::path& path, const FastPlace* place = nullptr);

  // Begins a run. If config.init names a checkpoint, fills in the weights, and what the optimizer
  // keeps of them, from there. The rest stays as it was built.
  // Throws: as find_initial_weights() and load_initial_weights()
  RunState begin();

  // Writes `root`/step-…. position: its fields for what this object holds are filled in.
  // Throws: as checkpoint::save()
  void save(const std::filesystem::path& root, RunState position);
  // The same with `saver`, to all places or only to memory. The save may continue after the call:
  // see checkpoint::Saver::start().
  void start_save(checkpoint::Saver& saver, const Places& places, RunState position,
                  bool only_memory);

  // The model's teacher, if the task has one; build() reads its weights when it is called first.
  const FrozenModel* teacher() const { return teacher_.get(); }
  ParallelModel& model() { return *model_; }
  const ParallelModel& model() const { return *model_; }
  Optimizer& optimizer() { return *optimizer_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  // What a step updates, in the order of the gradient norm's sums.
  std::span<StepPart* const> parts() const { return parts_; }
  TablePart& tables() { return *tables_; }
  const TablePart& tables() const { return *tables_; }
  LossScale& loss_scale() { return loss_scale_; }
  BadSteps& bad_steps() { return bad_steps_; }
  GradientNoise& noise() { return noise_; }
  BadSamples& bad_samples() { return bad_samples_; }

  int64_t compression_bytes() const;  // of this rank's residuals
  // Whether the next update gets gradients, and not their momentum.
  bool gets_gradients() const;
  // Whether load() found residuals that do not fit, so that they start from zero.
  bool compression_restarted() const { return compression_restarted_; }
  // The checkpoint that begin() has read; empty: none.
  const std::filesystem::path& initial_weights() const { return initial_weights_; }
  // Lines for people on these weights.
  // Throws: as Task::open_weights()
  std::vector<std::string> initial_notes() const;
  // Writes the task's files into a run's folder, and those that come with the initial weights.
  void write_files(const std::filesystem::path& folder) const;

 private:
  void load_initial();
  PlaceOf places() const;
  // Everything that is saved.
  std::vector<checkpoint::Entry> entries() const;
  void fill_in(RunState& position) const;
  checkpoint::SaveOptions save_options() const;

  const RunConfig& config_;
  const mesh::DeviceMesh& mesh_;
  comm::Communicator& world_;
  Callbacks& callbacks_;
  std::shared_ptr<const bool> overlap_;
  checkpoint::OnWait on_wait_;
  std::shared_ptr<parallel::GradientHook> hook_;  // null without compression
  std::shared_ptr<FrozenModel> teacher_;
  std::optional<ParallelModel> model_;
  std::optional<Optimizer> optimizer_;
  std::optional<DensePart> dense_;
  std::optional<TablePart> tables_;
  std::vector<StepPart*> parts_;
  std::function<SavedForm*()> make_form_;
  SavedForm* form_ = nullptr;
  LossScale loss_scale_;
  BadSteps bad_steps_;
  GradientNoise noise_;
  BadSamples bad_samples_;
  bool compression_restarted_ = false;
  std::filesystem::path initial_weights_;
  std::set<std::string> new_parameters_;  // of TaskTraits::new_head, that these lack
};

}  // namespace trireme::train
