#include "trireme/train/served_run.h"

#include <filesystem>
#include <iterator>
#include <utility>

#include <ATen/Parallel.h>

#include "trireme/base/error.h"
#include "trireme/base/seconds.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/train/parallel/layout.h"
#include "trireme/train/run/batches.h"
#include "trireme/train/run/inputs.h"
#include "trireme/train/server/served_model.h"
#include "trireme/train/state/resume.h"
#include "trireme/train/trainer_impl.h"

namespace trireme::train::inline internal {
namespace {

namespace fs = std::filesystem;

RunConfig for_one_rank(RunConfig config) {
  config.parallel.data = 1;
  config.parallel.shard = 1;
  return config;
}

}  // namespace

ServedRun::ServedRun(RunConfig config, comm::Communicator& world, TrainObserver& observer)
    : config_(std::move(config)),
      world_(world),
      observer_(observer),
      servers_(config_, world),
      self_(world.split(world.rank(), 0, "alone")),
      alone_(for_one_rank(config_)),
      mesh_(*self_, mesh_axes(alone_.parallel)),
      callbacks_(config_.callbacks, config_),
      state_(alone_, mesh_, *self_, callbacks_, nullptr, tell(observer)),
      saves_(alone_, state_, *self_),
      reports_(observer) {
  if (!servers_.is_server()) {
    workers_.emplace(servers_.role(), mesh_axes(config_.parallel));
    if (config_.parallel.host_sums) host_ = servers_.role().split(servers_.host(), 0, "host");
  }
  checkpoint::run_or_throw(world_, [this](const checkpoint::Peers&) {
    if (!is_root()) return;
    output_.emplace(config_.output.folder, lock_output_folder(config_),
                    [this](const fs::path& path) { config_.task->write_files(path); });
  });
  observer_.on_folder();
  places_.emplace(config_, world, tell(observer));
  resumption_.emplace(config_, world, *places_, tell(observer));
  use_tables();
  state_.build();
  std::vector<parallel::ServedParameter> parameters = served_parameters(state_.model().shards());
  num_dense_ = std::ssize(parameters);
  std::ranges::move(tables(), std::back_inserter(parameters));
  servers_.begin(parameters);
  if (owned_) owned_->own(servers_.own_pieces(), num_dense_);
  const RunState state = resumption_->load(state_);
  step_ = first_step_ = state.step;
  first_update_ = state_.optimizer().num_steps();
  if (!servers_.is_server()) {
    dataset::BatchOptions options =
        training_batches(config_, *workers_, {state.step, state.next_sample});
    batches_.emplace(config_.task->training(), options, read_ahead(config_, config_.train.steps));
  }
  start_output();
  servers_.start(first_step_, pieces());
}

ServedRun::~ServedRun() = default;

void ServedRun::use_tables() {
  if (!config_.task->has_tables()) return;
  if (servers_.is_server()) {
    alone_.remote_rows = owned_ = std::make_shared<OwnedRows>();
  } else {
    // A group of its own, because rank 0 saves all rows.
    alone_.remote_rows = pulled_ = std::make_shared<PulledRows>(*self_, /*reads_ahead=*/false);
  }
}

std::vector<parallel::ServedParameter> ServedRun::tables() {
  const std::vector<parallel::EmbeddingTables*> all = state_.model().tables().all();
  return all.empty() ? std::vector<parallel::ServedParameter>() : served_tables(*all.front());
}

void ServedRun::start_output() {
  checkpoint::run_or_throw(world_, [this](const checkpoint::Peers&) {
    if (!is_root()) return;
    output_->start(to_toml(config_), step_);
    if (step_ > 0) note_checkpoint(config_.output.folder, step_);
  });
  if (!is_root()) return;
  observer_.on_start(config_, {.num_ranks = world_.size(),
                               .num_threads = at::get_num_threads(),
                               .device = config_.device,
                               .num_parameters = config_.task->num_parameters(),
                               .num_samples = config_.task->training().size(),
                               .microbatches_per_step = config_.microbatches_per_step(),
                               .resumed_step = step_,
                               .resumed_place = step_ > 0 ? resumption_->place() : "",
                               .initial_weights = state_.initial_weights().string(),
                               .resume_notes = resumption_->notes(),
                               .memory = state_.model().memory(),
                               .optimizer_bytes = state_.optimizer().state_bytes()});
}

parallel::MakePiece ServedRun::pieces() {
  if (!servers_.is_server()) return {};
  parallel::MakePiece dense = make_pieces(config_, state_.model().shards(), state_.optimizer());
  if (!owned_) return dense;
  const parallel::MakePiece sparse = make_table_pieces(
      *state_.model().tables().all().front(), owned_, num_dense_, state_.optimizer().num_steps());
  return [=, num_dense = num_dense_](const parallel::Piece& piece, int64_t index) {
    return piece.parameter < num_dense ? dense(piece, index) : sparse(piece, index);
  };
}

Outcome ServedRun::run(const std::function<bool()>& stop) {
  if (!servers_.is_server()) return work(stop);
  servers_.serve();
  return finish(servers_, Outcome::kFinished, observer_);
}

void ServedRun::pull_from(parallel::ServerClient& client) {
  if (pulled_) pulled_->use(client, tables(), num_dense_);
}

Leave ServedRun::leave(const std::function<bool()>& stop) const {
  if (output_ && !output_->is_in_place()) return Leave::kFolderLost;
  return stop() ? Leave::kAsked : Leave::kNo;
}

Outcome ServedRun::work(const std::function<bool()>& stop) {
  if (talks()) {
    client_ = servers_.connect();
    pull_from(*client_);
  }
  if (host_) host_sums_.emplace(*host_, client_.get());
  Leave why = Leave::kNo;
  const auto is_due = [&] {
    return config_.checkpoint.interval > 0 && step_ % config_.checkpoint.interval == 0;
  };
  std::optional<Meeting> last;  // the meeting at which a worker left
  while (step_ < config_.train.steps && why == Leave::kNo && !last) {
    why = train_step(stop);
    observer_.on_finished(step_);
    if (why != Leave::kNo || step_ == config_.train.steps || !is_due()) continue;
    const Meeting meeting = meet_all(why);
    if (meeting.leave != static_cast<int>(Leave::kNo)) {
      last = meeting;
      continue;
    }
    on_root([&] { save(meeting, *client_); });
  }
  if (client_) client_->leave();  // the others stop waiting for this worker's pushes
  if (!last) last = meet_all(why);
  why = static_cast<Leave>(last->leave);
  TRIREME_CHECK(why != Leave::kFolderLost, "output.folder ", config_.output.folder,
                " is not in its place any more; resume from its newest checkpoint");
  on_root([&] {
    const auto reader = servers_.connect_reader();
    pull_from(*reader);
    save(*last, *reader);
    reader->leave();
  });
  if (is_root()) servers_.end();
  return finish(servers_, why == Leave::kNo ? Outcome::kFinished : Outcome::kStopped, observer_);
}

// The other workers wait however long it takes, and fail as rank 0 does.
void ServedRun::on_root(const std::function<void()>& work) {
  checkpoint::run_or_throw(
      servers_.role(),
      [&](const checkpoint::Peers&) {
        if (is_root()) work();
      },
      tell(observer_));
}

Meeting ServedRun::meet_all(Leave why) {
  return meet(servers_.role(), step_, static_cast<int>(why), talks());
}

// On rank 0: pulls weights and states from the servers and writes a checkpoint.
void ServedRun::save(const Meeting& meeting, parallel::ServerClient& client) {
  if (meeting.least_step == first_step_) return;  // the checkpoint that it started from
  pull_into(client, state_.model().shards(), state_.optimizer());
  const int64_t steps = meeting.sum_of_steps - meeting.num_counted * first_step_;
  state_.optimizer().set_num_steps(first_update_ +
                                   (is_synchronous() ? step_ - first_step_ : steps));
  output_->metrics().sync();
  saves_.start(*places_, {.step = meeting.least_step,
                          .next_sample = batches_->loader().step_sample(meeting.least_step),
                          .data = resumption_->data(),
                          .validation = resumption_->validation()});
  const auto saved = saves_.finish(/*waits=*/true);
  if (const auto warning = saves_.take_warning()) observer_.on_finding(*warning);
  if (!saved) return;
  note_checkpoint(config_.output.folder, saved->step);
  observer_.on_checkpoint(saved->folder, in_seconds(saved->took), in_seconds(saved->stall));
}

}  // namespace trireme::train::inline internal
