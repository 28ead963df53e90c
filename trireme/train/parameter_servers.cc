#include "trireme/train/parameter_servers.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/objects.h"
#include "trireme/train/numerics/loss_sum.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/server/server_ranks.h"
#include "trireme/train/step_reports.h"

namespace trireme::train {

// A worker's state is a replica of what the servers hold: its optimizer never steps, and its
// weights are overwritten by each pull. So a server starts from a state of its own that it has
// loaded as a worker does, and rank 0 writes checkpoints from its state after it has pulled into
// it. Workers in different steps meet only at checkpoints and at the end; a worker that leaves
// early goes to that meeting at once and waits there, having told the servers not to wait for it.

namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

std::string to_text(const RunStart& start) {
  return json{{"step", start.step},
              {"optimizer_steps", start.optimizer_steps},
              {"checkpoint", start.checkpoint.string()},
              {"initial_weights", start.initial_weights.string()}}
      .dump();
}

RunStart parse_start(const std::string& text) {
  const json start = json::parse(text);
  return {.step = start.at("step"),
          .optimizer_steps = start.at("optimizer_steps"),
          .checkpoint = start.at("checkpoint").get<std::string>(),
          .initial_weights = start.at("initial_weights").get<std::string>()};
}

}  // namespace

ParallelConfig for_one_rank(ParallelConfig parallel) {
  parallel.data = parallel.shard = 1;
  parallel.zero = 0;
  return parallel;
}

ServerStrategy::ServerStrategy(RunConfig config, comm::Communicator& world, TrainObserver& observer)
    : config_(std::move(config)),
      world_(world),
      observer_(observer),
      servers_(config_, world),
      self_(world.split(world.rank(), 0, "alone")),
      mesh_(*self_, mesh_axes(for_one_rank(config_.parallel))) {}

void ServerStrategy::find_rows_on_servers(RunConfig& config, comm::Communicator& savers,
                                          bool reads_ahead) {
  if (trains()) {
    config.remote_rows = pulled_ = std::make_shared<PulledRows>(savers, reads_ahead);
  } else {
    config.remote_rows = owned_ = std::make_shared<OwnedRows>();
  }
}

void ServerStrategy::on_servers(const std::function<void()>& work) {
  checkpoint::run_or_throw(
      world_,
      [&](const checkpoint::Peers&) {
        if (!trains()) work();
      },
      tell(observer_));
}

RunStart ServerStrategy::start_of_root(const RunStart& mine) {
  return parse_start(comm::broadcast_string(world_, to_text(mine), 0));
}

Outcome ServerStrategy::finish(Outcome outcome) {
  if (is_root()) servers_.end();
  return static_cast<Outcome>(servers_.finish(
      static_cast<int>(outcome), [this](const std::string& line) { observer_.on_finding(line); }));
}

Meeting meet(comm::Communicator& ranks, int64_t step, Leave leave, bool counts) {
  Meeting meeting;
  const std::vector<int64_t> steps = comm::all_gather_numbers(ranks, step);
  meeting.step = std::ranges::min(steps);
  const std::vector<int64_t> counted = comm::all_gather_numbers(ranks, counts ? 1 : 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    meeting.sum_of_steps += counted[i] * steps[i];
    meeting.num_counted += counted[i];
  }
  meeting.leave = agree(ranks, [leave] { return leave; });
  return meeting;
}

// The dense parameters, whose gradients go to the servers.
class ParameterServers::PushedPart final : public DensePart {
 public:
  PushedPart(ParameterServers& servers, TrainingState& state)
      : DensePart(servers.config_, state.model(), state.optimizer()), servers_(servers) {}

  std::vector<double> gradient_squares() const override {
    return servers_.norm_factor() ? DensePart::gradient_squares() : std::vector<double>();
  }
  void step(double learning_rate, double factor) override { servers_.push(learning_rate, factor); }

 private:
  ParameterServers& servers_;
};

ParameterServers::ParameterServers(const RunConfig& config, comm::Communicator& world,
                                   TrainObserver& observer)
    : ServerStrategy(config, world, observer) {
  if (trains() && config_.parallel.host_sums) {
    host_ = servers_.role().split(servers_.host(), 0, "host");
  }
}

ParameterServers::~ParameterServers() = default;

void ParameterServers::prepare(RunConfig& config) {
  // Rank 0 saves all rows.
  if (config_.task->traits().has_tables) {
    find_rows_on_servers(config, *self_, /*reads_ahead=*/false);
  }
}

const mesh::DeviceMesh& ParameterServers::mesh_of_model(const mesh::DeviceMesh& of_trainers) {
  workers_ = &of_trainers;
  return mesh_;
}

void ParameterServers::start(const RunStart& start, TrainingState* state) {
  start_ = start_of_root(start);
  on_servers([&] {
    prepare(config_);
    callbacks_.emplace(config_.callbacks, config_, tell_of_callbacks(observer_));
    own_.emplace(config_, mesh_, *self_, *callbacks_, nullptr, tell(observer_));
    own_->build();
  });
  state_ = own_ ? &*own_ : state;
  std::vector<parallel::ServedParameter> parameters = served_parameters(state_->model().shards());
  num_dense_ = std::ssize(parameters);
  std::ranges::move(tables(), std::back_inserter(parameters));
  servers_.begin(parameters);
  if (owned_) owned_->own(servers_.own_pieces(), num_dense_);
  on_servers([&] {
    if (start_.checkpoint.empty()) {
      own_->begin();
    } else {
      own_->load(start_.checkpoint);
    }
  });
  servers_.start(start_.step, pieces());
  pushed_ = std::make_unique<PushedPart>(*this, *state_);
  parts_ = {pushed_.get(), &state_->tables()};
}

std::vector<parallel::ServedParameter> ParameterServers::tables() const {
  const std::vector<StageTables>& all = state_->model().tables();
  return all.empty() ? std::vector<parallel::ServedParameter>()
                     : served_tables(*all.front().tables);
}

parallel::MakePiece ParameterServers::pieces() {
  if (trains()) return {};
  parallel::MakePiece dense = make_pieces(config_, state_->model().shards(), state_->optimizer());
  if (!owned_) return dense;
  const parallel::MakePiece sparse =
      make_table_pieces(*state_->model().tables().front().tables, owned_, num_dense_,
                        state_->optimizer().num_steps());
  return [=, num_dense = num_dense_](const parallel::Piece& piece, int64_t index) {
    return piece.parameter < num_dense ? dense(piece, index) : sparse(piece, index);
  };
}

void ParameterServers::pull_rows_from(parallel::ServerClient& client) {
  if (pulled_) pulled_->use(client, tables(), num_dense_);
}

void ParameterServers::connect(const std::function<bool()>& /*is_stopped*/) {
  if (talks()) {
    client_ = servers_.connect();
    pull_rows_from(*client_);
  }
  if (host_) host_sums_.emplace(*host_, client_.get());
}

Outcome ParameterServers::finish(Outcome outcome) {
  if (reader_) reader_->leave();
  return ServerStrategy::finish(outcome);
}

comm::Communicator& ParameterServers::peers() const {
  if (is_synchronous()) return servers_.role();
  return host_ ? *host_ : *self_;  // a host's ranks leave together
}

void ParameterServers::begin_step(int64_t step) {
  const auto begin = Clock::now();
  step_ = step - start_.step;
  std::vector<at::Tensor> weights;
  for (const parallel::Shard* const shard : trained_shards(state_->model().shards())) {
    weights.push_back(shard->weights.detach());
  }
  if (host_sums_) {
    host_sums_->pull(step_, weights);
  } else {
    client_->pull(step_, weights);
  }
  waited_ = Clock::now() - begin;
}

void ParameterServers::await_weights() {
  const auto begin = Clock::now();
  if (!host_sums_) client_->wait_all_pulled();
  waited_ += Clock::now() - begin;
}

int64_t ParameterServers::count_terms(ParallelModel& model, int64_t own) {
  if (!is_synchronous()) {
    model.use_global_count(own * servers_.num_workers());
    return own;
  }
  int64_t count = 0;
  for (const int64_t each : comm::all_gather_numbers(servers_.role(), own)) count += each;
  model.use_global_count(count);
  return count;
}

std::vector<double> ParameterServers::sums_over_batches(const ParallelModel& model,
                                                        std::vector<double> mine,
                                                        size_t num_batches) {
  if (!is_synchronous()) return model.sums_over_batches(std::move(mine));
  const size_t width = mine.size() / num_batches;
  return train::sums_over_batches(*workers_, /*pipeline_rank=*/0, std::move(mine), width);
}

// A worker in a step of its own takes its gradients for those of all.
std::optional<double> ParameterServers::norm_factor() const {
  if (is_synchronous()) return std::nullopt;
  return servers_.num_workers();
}

void ParameterServers::push(double learning_rate, double factor) {
  const auto begin = Clock::now();
  held_.clear();
  for (const parallel::Shard* const shard : trained_shards(state_->model().shards())) {
    if (factor != 1 && shard->gradient.defined()) shard->gradient.mul_(factor);
    const at::Tensor gradient =
        shard->gradient.defined() ? shard->gradient : at::zeros_like(shard->weights);
    held_.push_back(gradient.contiguous());
  }
  sent_before_ = client_ ? client_->counts().sent_bytes : 0;
  if (host_sums_) {
    host_sums_->push(step_, held_, learning_rate);
  } else {
    int64_t index = 0;
    for (const at::Tensor& gradient : held_) client_->push(step_, index++, gradient, learning_rate);
  }
  waited_ += Clock::now() - begin;
}

void ParameterServers::end_step() {
  const auto begin = Clock::now();
  if (!host_sums_) client_->wait_pushed();
  if (client_) gradient_bytes_ = client_->counts().sent_bytes - sent_before_;
  waited_ += Clock::now() - begin;
}

Meeting ParameterServers::meet(int64_t step, Leave leave) {
  const Meeting meeting = train::meet(servers_.role(), step, leave, talks());
  if (meeting.leave != Leave::kNo) last_ = meeting;
  return meeting;
}

Meeting ParameterServers::leave(int64_t step, Leave leave) {
  if (client_) client_->leave();  // the others stop waiting for this worker's pushes
  has_left_ = true;
  if (!last_) last_ = train::meet(servers_.role(), step, leave, talks());
  return *last_;
}

void ParameterServers::fetch(const Meeting& meeting) {
  if (has_left_ && !reader_) {
    reader_ = servers_.connect_reader();
    pull_rows_from(*reader_);
  }
  Optimizer& optimizer = state_->optimizer();
  pull_into(reader_ ? *reader_ : *client_, state_->model().shards(), optimizer);
  const int64_t steps = is_synchronous() ? meeting.step - start_.step
                                         : meeting.sum_of_steps - meeting.num_counted * start_.step;
  optimizer.set_num_steps(start_.optimizer_steps + steps);
}

}  // namespace trireme::train
