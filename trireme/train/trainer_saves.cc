// Checkpoints during a run, and what becomes of it when its folder is lost.
#include <algorithm>
#include <exception>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/state/resume.h"
#include "trireme/train/trainer_impl.h"

namespace trireme::train::inline internal {

namespace fs = std::filesystem;

// Moves layers between stages, with their weights and optimizer states, through a separate
// checkpoint, which works for any two layouts. No bit of the computation changes.
void TrainerImpl::rebalance() {
  finish_save(/*waits=*/true);
  const auto layers = balance_->better_layers(config_.parallel.rebalance_threshold);
  if (!layers || ask_again(Leave::kNo) != Leave::kNo) return;
  const fs::path root = folder() / "rebalance";
  const std::string before = to_text(state_.model().layout().layers);
  on_root([&] { fs::remove_all(root); });  // left by a run that was interrupted here
  state_.save(root, position());
  config_.parallel.stage_layers = to_text(*layers);
  build_model();
  const RunState state =
      state_.load(from_root([&] { return checkpoint::latest(root).value_or(root).string(); }));
  TRIREME_ASSERT(state.step == step_, "moved to the weights of step ", state.step, " in step ",
                 step_);
  on_root([&] {
    fs::remove_all(root);
    output_->write_config(to_toml(config_));
  });
  if (!is_root()) return;
  observer_.on_finding(concat("decided layers of the stages ", before, " -> ",
                              config_.parallel.stage_layers, ", to even out their times"));
}

// Begins a checkpoint of this step, and with checkpoint.mode = "sync" ends it too.
void TrainerImpl::save() {
  finish_save(/*waits=*/true);
  if (ask_again(Leave::kNo) == Leave::kFolderLost) leave_lost_folder();
  // A checkpoint must never claim a step whose line is missing, even after a power failure.
  on_root([this] { output_->metrics().sync(); });
  saves_.start(*places_, position());
  if (config_.checkpoint.mode == CheckpointMode::kSync) finish_save(/*waits=*/true);
}

// Begins a checkpoint in memory, unless one is under way: the next one is near.
void TrainerImpl::save_to_memory() {
  if (saves_.is_busy()) return;
  saves_.start(*places_, position(), /*only_memory=*/true);
  if (config_.checkpoint.mode == CheckpointMode::kSync) finish_save(/*waits=*/true);
}

// Tells of a checkpoint that has ended, if one has.
void TrainerImpl::finish_save(bool waits) {
  std::optional<checkpoint::Saved> saved;
  try {
    saved = saves_.finish(waits);
  } catch (const CommError&) {
    throw;  // nothing can be asked any more
  } catch (const Error&) {
    if (ask_again(Leave::kNo) == Leave::kFolderLost) leave_lost_folder();
    throw;
  }
  if (const auto warning = saves_.take_warning(); warning && is_root()) {
    observer_.on_finding(*warning);
  }
  if (!saved) return;
  saved_step_ = saved->step;
  on_root([&] { note_checkpoint(folder(), saved->step); });
  if (is_root()) {
    observer_.on_checkpoint(saved->folder, in_seconds(saved->took), in_seconds(saved->stall));
  }
  call(Event::kCheckpoint, saved->folder);
}

// The run's folder is not in its place. Saves a checkpoint where it can, and ends the run with an
// explanation.
void TrainerImpl::leave_lost_folder() {
  saves_.abandon();
  const std::string found = from_root([this] {
    const RunFolder::Loss loss = output_->recover(metrics_);
    return loss.refuge.string() + '\0' + loss.message;
  });
  const size_t end = found.find('\0');
  if (end > 0) state_.save(fs::path(found.substr(0, end)) / "checkpoints", position());
  throw ConfigError(found.substr(end + 1));
}

RunState TrainerImpl::position() const {
  return {.step = step_,
          .next_sample = batches_->loader().step_sample(step_),
          .data = resumption_->data(),
          .validation = resumption_->validation()};
}

}  // namespace trireme::train::inline internal
