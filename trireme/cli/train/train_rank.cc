#include "trireme/cli/train/train_rank.h"

#include <csignal>
#include <optional>
#include <sstream>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/train/automatic_layout.h"
#include "trireme/cli/train/prediction.h"
#include "trireme/train/run/device.h"

namespace trireme::cli::inline internal {
namespace {

std::atomic<bool> stop_flag = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // set from a signal handler

// "epoch 2: 3 ranks, rank 2 was killed by signal 9; goes on from step 40 in memory".
std::string describe(const Epoch& epoch, const train::RunSummary& summary) {
  const bool is_new = summary.resumed_step == 0;
  return concat("epoch ", epoch.number, ": ", summary.num_ranks,
                summary.num_ranks == 1 ? " rank" : " ranks", epoch.reason.empty() ? "" : ", ",
                epoch.reason,
                is_new ? "; begins anew" : concat("; goes on from step ", summary.resumed_step),
                is_new ? "" : " in " + summary.resumed_place);
}

// An observer of one epoch. Publishes the rank's records in the run's folder as soon as the run
// owns it. On rank 0 `record` learns what the steps take.
template <typename Base>
class EpochObserver : public Base {
 public:
  EpochObserver(const Epoch& epoch, comm::Recorder& recorder, RunRecord& record)
      : epoch_(epoch), recorder_(recorder), record_(record) {}
  void on_folder() override { recorder_.publish(); }
  void on_start(const train::RunConfig& config, const train::RunSummary& summary) override {
    if (epoch_.number > 1) Base::on_finding(describe(epoch_, summary));
    record_.begin(config);
    Base::on_start(config, summary);
  }
  void on_step(const train::StepMetrics& metrics) override {
    record_.add(metrics);
    Base::on_step(metrics);
  }
  void on_finished(int64_t step) override {
    if (epoch_.on_finished) epoch_.on_finished(step);
  }

 private:
  const Epoch& epoch_;
  comm::Recorder& recorder_;
  RunRecord& record_;
};

}  // namespace

const std::atomic<bool>& stop_requested = stop_flag;

void stop_on_signals() {
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) {
    if (!launch::is_ignored(signal)) std::signal(signal, [](int) { stop_flag = true; });
  }
  // The reader of the output may be gone. The run continues and saves.
  std::signal(SIGPIPE, SIG_IGN);
}

train::Outcome train_rank(const train::RunConfig& given, RankGroup& group,
                          const train::ProfileOptions& profile, const Epoch& epoch) {
  stop_on_signals();
  RunRecord record;
  EpochObserver<Console> console(epoch, *group.recorder(), record);
  EpochObserver<train::TrainObserver> silent(epoch, *group.recorder(), record);
  train::TrainObserver& printer = console;
  comm::Communicator& world = group.world();
  train::RunConfig config = given;
  if (given.parallel.automatic) {
    AutomaticLayout chosen = choose_layout(given, world);
    config = std::move(chosen.config);
    if (world.rank() == 0) console.on_finding(chosen.line);
  }
  const std::string note = train::note_of_device(config, group.num_local_ranks());
  if (world.rank() == 0 && !note.empty()) console.on_finding("device  " + note);
  train::ProfileOptions recorded = profile;
  recorded.recorder = group.recorder();
  const auto has_to_stop = [&] {
    return stop_requested || (epoch.has_to_finish && epoch.has_to_finish());
  };
  std::optional<train::Trainer> trainer(std::in_place, config, world,
                                        world.rank() == 0 ? printer : silent, recorded);
  const train::Outcome outcome = trainer->run(has_to_stop);
  trainer.reset();  // its memory is free for what follows
  // Under an agent a run that stops for another's sake goes on in the next epoch.
  const bool goes_on =
      epoch.has_to_finish && outcome == train::Outcome::kStopped && !stop_requested;
  if (world.rank() == 0 && !goes_on) console.on_end(outcome);
  // In a later epoch the process has had the memory of the earlier ones.
  // The cost model knows no servers.
  const bool is_known = epoch.number == 1 && config.parallel.servers == 0;
  if (outcome == train::Outcome::kFinished && is_known) {
    std::istringstream lines(compare_with_prediction(config, record, world));
    for (std::string line; std::getline(lines, line);) console.on_finding("planner " + line);
  }
  return outcome;
}

}  // namespace trireme::cli::inline internal
