// The files of a run: its folder, its checkpoints, and what becomes of it when its folder is lost.
#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/objects.h"
#include "trireme/remote/store_settings.h"
#include "trireme/train/config/shares.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/state/resume.h"
#include "trireme/train/trainer_impl.h"

namespace trireme::train {

namespace fs = std::filesystem;

void TrainerImpl::start_output(int num_ranks) {
  if (mesh_.size("tensor") > 1) {
    const std::vector<std::string> hosts = comm::all_gather_strings(world_, comm::host_identity());
    tensor_crosses_hosts_ = tensor_crosses_hosts(hosts, mesh_.size("tensor"));
  }
  resume_notes_ = resumption_->notes();
  on_root([this] {
    output_->start(config_text(), step_);
    write_shares();
    if (step_ > 0 && resumption_->is_in_folder()) note_checkpoint(folder(), step_);
    const std::vector<int64_t>& lines = output_->metrics().unreadable_lines();
    if (!lines.empty()) {
      resume_notes_.push_back(concat(kMetricsName, " keeps lines that cannot be read: ",
                                     lines.size(), ", the first is line ", lines.front()));
    }
  });
  start_series();
  if (!is_root()) return;
  observer_.on_start(config_, summary(num_ranks));
  tell_of_store();
}

// Every rank says its numbers, and rank 0 writes them.
void TrainerImpl::start_series() {
  const int num_ranks = updates_.peers().size();
  if (!RankNumbers::are_wanted(config_, num_ranks)) return;
  numbers_.emplace(config_, num_ranks, recorder_ ? recorder_->waits() : nullptr);
  if (!is_root()) return;
  series_.emplace(
      SeriesOptions{.run_folder = folder(), .last_step = step_, .epoch = config_.run_epoch});
}

void TrainerImpl::write_series(std::optional<RankRow> ranks) {
  if (!series_ || !ranks) return;
  output_->metrics().write(metrics_.step, axis_scalars(*ranks));
  series_->add(metrics_.step, ranks->shape, ranks->values);
  if (!ranks->waits.empty()) series_->add(std::move(ranks->waits));
  if (const auto problem = series_->take_problem()) {
    observer_.on_finding(concat("warning: the series of ranks lack steps: ", *problem));
  }
}

// For a run that repeats this one's shares.
void TrainerImpl::write_shares() const {
  const fs::path path = folder() / kSharesName;
  std::error_code ignored;
  if (config_.shares.empty()) {
    fs::remove(path, ignored);  // of a run that went on with equal shares
  } else {
    write_file_atomically(path, to_text(config_.shares));
  }
}

// For the run's folder. A new run that begins with it chooses its own order of gradients, unless
// this one was told; checkpoints have that of the run.
std::string TrainerImpl::config_text() const {
  RunConfig config = config_;
  config.parallel.gradient_order = given_order_;
  return to_toml(config);
}

// Moves layers between stages, with their weights and optimizer states, through a separate
// checkpoint, which works for any two layouts. No bit of the computation changes.
void TrainerImpl::rebalance() {
  finish_save(/*waits=*/true);
  const auto layers = balance_->better_layers(config_.parallel.rebalance_threshold);
  if (!layers || ask_again(Leave::kNo) != Leave::kNo) return;
  const fs::path root = folder() / "rebalance";
  const std::string before = to_text(state_.model().layout().layers);
  std::error_code ignored;
  on_root([&] { fs::remove_all(root, ignored); });  // left by a run that was interrupted here
  state_.save(root, position());
  config_.parallel.stage_layers = to_text(*layers);
  build_model();
  const RunState state =
      state_.load((root / checkpoint::folder_name(step_, config_.run_epoch)).string());
  TRIREME_ASSERT(state.step == step_, "moved to the weights of step ", state.step, " in step ",
                 step_);
  on_root([&] {
    fs::remove_all(root, ignored);
    output_->write_config(config_text());
  });
  if (!is_root()) return;
  observer_.on_finding(concat("decided layers of the stages ", before, " -> ",
                              config_.parallel.stage_layers, ", to even out their times"));
}

// Gives the data ranks other shares of the batch from the next step on, if that pays.
void TrainerImpl::share_anew() {
  const std::vector<int64_t> before = shares_at(config_.shares, step_);
  const auto shares = share_balance_->better(before, memory_->use());
  if (!shares || ask_again(Leave::kNo) != Leave::kNo) return;
  const std::vector<dataset::Shares> after = {{0, *shares}};
  config_.shares = joined_shares(config_.shares, after, step_);
  batches_->use_shares(config_.shares);
  on_root([this] { write_shares(); });
  if (!is_root()) return;
  observer_.on_finding(concat("decided shares of the data ranks ", describe_shares(before), " -> ",
                              describe_shares(*shares), ", to even out their times of ",
                              share_balance_->times(), " a step"));
}

// On rank 0, whose folder is locked and may have no checkpoint yet.
void TrainerImpl::start_store() {
  if (config_.checkpoint.store.empty()) return;
  store_ = std::make_unique<CheckpointStore>(
      CheckpointStoreOptions{
          .url = config_.checkpoint.store, .folder = folder(), .keep = config_.checkpoint.keep},
      remote::read_store_settings());
}

// On rank 0. Throws what has ended a copy of a checkpoint, or tells of it.
// run_ends: waits for the copies
void TrainerImpl::check_store(bool run_ends) {
  if (!store_) return;
  try {
    run_ends ? store_->finish() : store_->check();
  } catch (const Error& error) {
    const bool warns = config_.checkpoint.on_error == CheckpointOnError::kWarn;
    if (!warns || store_->has_lost_claim()) throw;
    observer_.on_finding(concat("warning: a checkpoint was not stored: ", error.what()));
  }
}

void TrainerImpl::tell_of_store() {
  if (!store_) return;
  for (const std::string& line : store_->take_notes()) observer_.on_finding(line);
}

// Begins a checkpoint, and with checkpoint.mode = "sync", or where rank 0 saves alone, ends it too.
void TrainerImpl::save(const Meeting& meeting) {
  finish_save(/*waits=*/true);
  const Leave why = updates_.root_saves() ? meeting.leave : ask_all(meeting.leave);
  if (why == Leave::kFolderLost) leave_lost_folder(meeting);
  begun_step_ = meeting.step;
  std::optional<checkpoint::Saved> saved;
  on_root([&] {
    check_store(/*run_ends=*/false);
    // A checkpoint must never claim a step whose line is missing, even after a power failure.
    output_->metrics().sync();
    if (series_) series_->flush();
    if (!updates_.root_saves()) return;
    updates_.fetch(meeting);
    saves_.start(*places_, position(meeting.step));
    saved = saves_.finish(/*waits=*/true);
    if (saved) note_checkpoint(folder(), saved->step);
    if (saved && store_) store_->copy(saved->folder);
  });
  if (updates_.root_saves()) {
    if (is_root()) tell_of(saved);
    return;
  }
  saves_.start(*places_, position(meeting.step));
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
    const Leave why = ask_all(Leave::kNo);
    if (why == Leave::kFolderLost) leave_lost_folder({.step = step_, .leave = why});
    throw;
  }
  if (saved) {
    saved_step_ = saved->step;
    on_root([&] {
      note_checkpoint(folder(), saved->step);
      if (store_) store_->copy(saved->folder);
    });
  }
  if (is_root()) tell_of(saved);
  if (saved) call(Event::kCheckpoint, saved->folder);
}

// Tells the user, on rank 0.
void TrainerImpl::tell_of(const std::optional<checkpoint::Saved>& saved) {
  if (const auto warning = saves_.take_warning()) observer_.on_finding(*warning);
  if (!saved) return;
  observer_.on_checkpoint(saved->folder, in_seconds(saved->took), in_seconds(saved->stall));
}

// The run's folder is not in its place. Saves a checkpoint where it can, and ends the run with an
// explanation.
void TrainerImpl::leave_lost_folder(const Meeting& meeting) {
  saves_.abandon();
  const std::string found = from_root([this] {
    const RunFolder::Loss loss = output_->recover(metrics_);
    return loss.refuge.string() + '\0' + loss.message;
  });
  const size_t end = found.find('\0');
  const fs::path refuge = found.substr(0, end);
  const auto save_there = [&] { state_.save(refuge / "checkpoints", position(meeting.step)); };
  if (end > 0 && updates_.root_saves()) {
    on_root([&] {
      updates_.fetch(meeting);
      save_there();
    });
  } else if (end > 0) {
    save_there();
  }
  throw ConfigError(found.substr(end + 1));
}

RunState TrainerImpl::position(int64_t step) const {
  return {.step = step,
          .next_sample = batches_->loader().step_sample(step),
          .data = resumption_->data(),
          .validation = resumption_->validation(),
          .teacher = resumption_->teacher(),
          .shares = config_.shares};
}

}  // namespace trireme::train
