#include "trireme/train/callbacks/watched_metric.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/publish.h"
#include "trireme/train/callbacks/callback.h"

namespace trireme::train {

void check_watched(std::string_view key, const std::string& metric,
                   std::span<const std::string> metrics) {
  if (std::ranges::find(metrics, metric) != metrics.end()) return;
  TRIREME_CHECK(!metrics.empty(), key, " is \"", shown(metric),
                "\", but this run does not evaluate; set train.evaluate_interval");
  const std::string meant = did_you_mean(metrics, metric);
  throw ConfigError(
      concat(key, " is \"", shown(metric), "\", which evaluations do not have",
             meant.empty() ? "; they have " + in_words({metrics.begin(), metrics.end()}) : meant));
}

namespace {

namespace fs = std::filesystem;

bool is_of_step(const fs::path& checkpoint, int64_t step) {
  return checkpoint::step_of(checkpoint.filename().string()) == step;
}

void link_or_copy(const fs::path& from, const fs::path& to) {
  for (const fs::directory_entry& file : fs::directory_iterator(from)) {
    const fs::path copy = to / file.path().filename();
    std::error_code error;
    fs::create_hard_link(file.path(), copy, error);
    if (error) fs::copy_file(file.path(), copy);
  }
}

// Makes a checkpoint in `root` with the files of `source`, in place of one of the same step, and
// removes the others there, except those of later epochs.
void keep(const fs::path& source, const fs::path& root) {
  const std::string name = source.filename();
  const int64_t epoch = checkpoint::epoch_of(name);
  const fs::path temporary = checkpoint::prepare_temporary(root, checkpoint::step_of(name), epoch);
  try {
    link_or_copy(source, temporary);
    checkpoint::publish(temporary, /*fsync=*/true);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  for (const fs::path& older : checkpoint::list(root)) {
    const bool is_later = checkpoint::epoch_of(older.filename().string()) > epoch;
    if (older.filename() == name || is_later) continue;
    try {
      checkpoint::remove_checkpoint(older, /*fsync=*/false);
    } catch (const Error&) {  // the new one is there all the same
    }
  }
}

// Rank 0 works; the others wait, however slow its disk is.
void keep_on_root(RunView& run, const fs::path& checkpoint, bool replaces) {
  const fs::path root = run.folder() / "best";
  checkpoint::from_root(run.world(), [&](const checkpoint::Peers&) {
    if (replaces || !fs::exists(root / checkpoint.filename())) keep(checkpoint, root);
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
  const std::string found = checkpoint::from_root(run.world(), [&](const checkpoint::Peers&) {
    std::string saved;  // "": it may be in memory so far
    for (const fs::path& folder : checkpoint::list(run.folder() / "checkpoints")) {
      if (is_of_step(folder, best_step_)) saved = folder.string();
    }
    return saved;
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
  if (is_of_step(checkpoint, best_step_)) {
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

void EarlyStop::check(const RunConfig& /*config*/, std::span<const std::string> metrics) const {
  check_watched("early_stop.metric", config_.metric, metrics);
}

void EarlyStop::on_evaluate(RunView& run) {
  const auto value = find_metric(run.metrics(), config_.metric);
  if (!value) return;
  num_worse_ = best_.improve(*value, config_.goal, config_.minimum_change) ? 0 : num_worse_ + 1;
  stop_if_due(run);
}

void EarlyStop::stop_if_due(RunView& run) const {
  if (num_worse_ < config_.patience) return;
  run.stop(concat(config_.metric, " has not improved in ", num_worse_, " evaluations; its best is ",
                  best_.value()),
           /*for_good=*/true);
}

std::string EarlyStop::state() const {
  return write_state({{"best", best_.value()}, {"num_worse", static_cast<double>(num_worse_)}});
}

void EarlyStop::restore(const std::string& state) {
  const StateNumbers numbers = read_state(state, "early_stop", {"best", "num_worse"});
  best_.restore(numbers.at("best"));
  num_worse_ = count_in(numbers, "num_worse", "early_stop");
}

}  // namespace trireme::train
