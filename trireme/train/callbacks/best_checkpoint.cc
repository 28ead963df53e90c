#include "trireme/train/callbacks/best_checkpoint.h"

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/new_folder.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/train/callbacks/callback_state.h"

namespace trireme::train::inline internal {
namespace {

namespace fs = std::filesystem;

// Makes `target` a checkpoint with the files of `source`, and removes the others beside it.
void keep(const fs::path& source, const fs::path& target) {
  make_folders(target.parent_path());
  fs::remove_all(target);  // of the same step, before the run was resumed
  NewFolder folder(target);
  for (const fs::directory_entry& file : fs::directory_iterator(source)) {
    const fs::path copy = folder.path() / file.path().filename();
    std::error_code error;
    fs::create_hard_link(file.path(), copy, error);
    if (error) fs::copy_file(file.path(), copy);
  }
  folder.commit();
  for (const fs::path& older : checkpoint::list(target.parent_path())) {
    if (older.filename() != target.filename()) fs::remove_all(older);
  }
}

// Rank 0 works; the others wait, however slow its disk is.
void keep_on_root(RunView& run, const fs::path& checkpoint, bool replaces) {
  const fs::path target = run.folder() / "best" / checkpoint.filename();
  checkpoint::from_root(run.world(), [&](const checkpoint::Peers&) {
    if (replaces || !fs::exists(target)) keep(checkpoint, target);
    return std::string();
  });
}

}  // namespace

void BestCheckpoint::check(const RunConfig& /*config*/,
                           std::span<const std::string> metrics) const {
  check_watched("checkpoint.best", config_.best, metrics);
}

// A run that was killed between a checkpoint and its copy makes the copy here.
void BestCheckpoint::on_start(RunView& run) {
  if (best_step_ == 0 || best_step_ != run.step()) return;
  const fs::path saved = run.folder() / "checkpoints" / checkpoint::folder_name(best_step_);
  const std::string found = checkpoint::from_root(run.world(), [&](const checkpoint::Peers&) {
    return fs::exists(saved) ? saved.string() : std::string();  // it may be in memory so far
  });
  if (!found.empty()) keep_on_root(run, found, /*replaces=*/false);
}

void BestCheckpoint::on_evaluate(RunView& run) {
  const auto value = find_metric(run.metrics(), config_.best);
  if (!value || !best_.improve(*value, config_.best_goal)) return;
  best_step_ = run.step();
  run.request_checkpoint();
}

void BestCheckpoint::on_checkpoint(RunView& run, const fs::path& checkpoint) {
  // It may have been written behind later steps.
  if (checkpoint.filename() == checkpoint::folder_name(best_step_)) {
    keep_on_root(run, checkpoint, /*replaces=*/true);
  }
}

std::string BestCheckpoint::state() const {
  return write_state({{"best", best_.value()}, {"step", static_cast<double>(best_step_)}});
}

void BestCheckpoint::restore(const std::string& state) {
  const StateNumbers numbers = read_state(state, "best", {"best", "step"});
  best_.restore(numbers.at("best"));
  best_step_ = count_in(numbers, "step", "best");
}

}  // namespace trireme::train::inline internal
