#include "trireme/train/server/server_ranks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/random/random.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/objects.h"
#include "trireme/train/optimizer/parameter_groups.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// Number of rank 0's client that reads from the servers once all workers have left.
constexpr uint32_t kReader = 65'535;

// The part of the config that a replay must have in common with the first run.
std::string identity_text(RunConfig config) {
  config.output = {};
  // Learners meet at checkpoints, where their rounds end.
  const int64_t interval = config.parallel.learners > 1 ? config.checkpoint.interval : 0;
  config.checkpoint = {};
  config.checkpoint.interval = interval;
  config.resume = {};
  config.parallel.replay.clear();
  config.parallel.gradient_order = {};  // which a run writes once it is resolved
  config.parallel.timeout_seconds = 1;
  return to_toml(config);
}

parallel::Consistency consistency_of(const RunConfig& config) {
  if (config.parallel.learners == 1) return {config.parallel.staleness};
  const OuterConfig& outer = config.outer;
  return {.staleness = outer.staleness,
          .quorum = outer.quorum > 0 ? outer.quorum : config.parallel.learners,
          .grace = std::chrono::milliseconds(std::llround(outer.grace_seconds * 1000))};
}

}  // namespace

ServerRanks::ServerRanks(const RunConfig& config, comm::Communicator& world)
    : config_(config),
      world_(world),
      num_workers_(world.size() - static_cast<int>(config.parallel.servers)),
      role_(world.split(is_server() ? 1 : 0, 0, is_server() ? "servers" : "workers")) {
  const std::vector<std::string> identities =
      comm::all_gather_strings(world_, comm::host_identity());
  const std::span<const std::string> of_workers =
      std::span(identities).first(static_cast<size_t>(num_workers_));
  std::vector<std::string> hosts;
  for (const std::string& host : of_workers) {
    if (std::ranges::count(hosts, host) == 0) hosts.push_back(host);
  }
  num_worker_hosts_ = static_cast<int>(hosts.size());
  host_ = static_cast<int>(std::ranges::find(hosts, comm::host_identity()) - hosts.begin());
  if (std::ranges::count(identities, identities.front()) == world_.size()) return;
  const std::vector<std::string> addresses = comm::all_gather_strings(world_, config.host_address);
  for (size_t rank = 0; rank < addresses.size(); ++rank) {
    TRIREME_CHECK(!addresses[rank].empty(),
                  "parallel.servers with ranks on several hosts, but rank ", rank,
                  " has no address that the others can reach, because the ranks did not connect "
                  "over a network; set MASTER_ADDR or GLOO_SOCKET_IFNAME");
  }
  listens_on_ = config.host_address;
}

fs::path ServerRanks::log_path(int64_t server) const {
  return fs::path(config_.output.folder) / "server-log" /
         concat("from-", first_step_, "-server-", server);
}

void ServerRanks::begin(const std::vector<parallel::ServedParameter>& parameters) {
  const ParallelConfig& parallel = config_.parallel;
  const std::vector<double> shares(static_cast<size_t>(parallel.servers), 1.0);
  run_ = {.pieces = parallel::key_ranges(parameters, shares),
          .shards = parallel.servers,
          .copies = parallel.server_copies,
          .consistency = consistency_of(config_),
          .secret = comm::broadcast_string(world_, unique_name() + unique_name(), 0),
          .config = identity_text(config_),
          .timeout = std::chrono::seconds(parallel.timeout_seconds)};
  // A learner may stand still for as long as the others would wait for it.
  if (has_learners()) run_.silence = run_.timeout;
  if (is_root()) {
    director_ = std::make_unique<parallel::Director>(
        run_, parallel::DirectorOptions{.workers = has_learners() ? config_.parallel.learners
                                                   : config_.parallel.host_sums ? num_worker_hosts_
                                                                                : num_workers_,
                                        .host = listens_on_});
    address_ = director_->address();
  }
  address_ = comm::broadcast_string(world_, address_, 0);
}

std::vector<parallel::Piece> ServerRanks::own_pieces() const {
  std::vector<parallel::Piece> own;
  for (const parallel::Piece& piece : run_.pieces) {
    const bool is_own = parallel::has_at_start(run_, world_.rank() - num_workers_, piece.shard);
    if (is_own) own.push_back(piece);
  }
  return own;
}

void ServerRanks::start(int64_t first_step, const parallel::MakePiece& make) {
  first_step_ = first_step;
  checkpoint::run_or_throw(world_, [&](const checkpoint::Peers&) {
    const std::string& replay = config_.parallel.replay;
    if (!is_synchronous() && (is_root() || is_server())) {  // hosts may not share the folder
      fs::create_directories(log_path(0).parent_path());
    }
    if (!is_server()) return;
    const int64_t number = role_->rank();
    const bool writes_log = !is_synchronous() && replay.empty();
    if (writes_log) fs::remove(log_path(number));
    server_ = std::make_unique<parallel::ParameterServer>(
        run_, make,
        parallel::ParameterServerOptions{
            .director = address_,
            .number = static_cast<uint32_t>(number),
            .host = listens_on_,
            .log = writes_log ? log_path(number) : fs::path(),
            .replay =
                replay.empty() ? fs::path() : fs::path(replay) / log_path(number).filename()});
  });
}

std::unique_ptr<parallel::ServerClient> ServerRanks::connect() const {
  int number = config_.parallel.host_sums ? host_ : world_.rank();
  if (has_learners()) number /= num_workers_ / static_cast<int>(config_.parallel.learners);
  return std::make_unique<parallel::ServerClient>(
      run_,
      parallel::ServerClientOptions{.director = address_, .number = static_cast<uint32_t>(number)});
}

std::unique_ptr<parallel::ServerClient> ServerRanks::connect_reader() const {
  return std::make_unique<parallel::ServerClient>(
      run_, parallel::ServerClientOptions{.director = address_, .number = kReader});
}

int ServerRanks::finish(int outcome, const std::function<void(const std::string& line)>& tell) {
  const parallel::StalenessCounts own =
      server_ ? server_->counts().staleness : parallel::StalenessCounts();
  if (config_.parallel.server_copies > 1) {
    if (server_ && !is_synchronous()) {
      write_histogram(concat("staleness-server-", role_->rank(), ".json"), own);
    }
    return outcome;
  }
  outcome = static_cast<int>(comm::all_gather_numbers(world_, outcome).front());
  if (is_synchronous()) return outcome;
  std::string mine;
  for (const auto& [steps, count] : own) mine += concat(steps, ' ', count, ' ');
  parallel::StalenessCounts all;
  for (const std::string& text : comm::gather_strings(world_, mine, 0)) {
    TextReader words(text);
    for (int64_t steps = 0, count = 0; words >> steps >> count;) all[steps] += count;
  }
  if (is_root()) {
    write_histogram("staleness.json", all);
    tell((has_learners() ? "pushes by rounds that have ended without them: "
                         : "pulls by steps ahead of the slowest worker: ") +
         parallel::to_json(all));
  }
  return outcome;
}

void ServerRanks::write_histogram(const std::string& name,
                                  const parallel::StalenessCounts& counts) const {
  OutputFile file(log_path(0).parent_path() / name);
  file.write(parallel::to_json(counts) + "\n");
  file.close();
}

namespace {

// A parameter's optimizer tensors, in the order of the rule.
struct States {
  std::vector<std::string> names;
  std::vector<at::Tensor> values;
};

std::map<std::string, States> states_of(std::span<const parallel::Shard> shards,
                                        const Optimizer& optimizer) {
  std::map<std::string, States> states;
  for (const checkpoint::Entry& entry : optimizer.state()) {
    for (const parallel::Shard& shard : shards) {
      if (!entry.name.ends_with("." + shard.name)) continue;
      const std::string name = entry.name.substr(0, entry.name.size() - shard.name.size() - 1);
      if (name.find('.') != std::string::npos) continue;  // of a longer parameter's name
      States& found = states[shard.name];
      found.names.push_back(name);
      found.values.push_back(entry.local);
    }
  }
  return states;
}

class RulePiece final : public parallel::PieceUpdate {
 public:
  RulePiece(std::shared_ptr<const UpdateRule> rule, ParameterSettings settings, States states,
            int64_t first_step)
      : rule_(std::move(rule)),
        settings_(settings),
        states_(std::move(states)),
        first_step_(first_step) {}

  void apply(at::Tensor& weights, const parallel::PieceGradient& gradient, double learning_rate,
             int64_t step) override {
    const c10::NoGradGuard no_grad;
    const UpdateItem item{.weights = weights.view({-1}),
                          .gradient = gradient.values.view({-1}),
                          .state = states_.values,
                          .weight_decay = settings_.weight_decay,
                          .rate_scale = settings_.rate_scale};
    rule_->update({&item, 1}, learning_rate, first_step_ + step);
  }
  std::vector<parallel::PieceState> states() override {
    std::vector<parallel::PieceState> named;
    for (size_t i = 0; i < states_.names.size(); ++i) {
      named.push_back({states_.names[i], states_.values[i]});
    }
    return named;
  }

 private:
  std::shared_ptr<const UpdateRule> rule_;
  ParameterSettings settings_;
  States states_;  // flat, of this piece
  int64_t first_step_;
};

}  // namespace

std::vector<const parallel::Shard*> trained_shards(std::span<const parallel::Shard> shards) {
  std::vector<const parallel::Shard*> trained;
  for (const parallel::Shard& shard : shards) {
    TRIREME_ASSERT(shard.is_whole() && shard.weights.is_contiguous(), shard.name, " is not whole");
    if (shard.is_trained) trained.push_back(&shard);
  }
  return trained;
}

std::vector<parallel::ServedParameter> served_parameters(std::span<const parallel::Shard> shards) {
  std::vector<parallel::ServedParameter> parameters;
  for (const parallel::Shard* const shard : trained_shards(shards)) {
    parameters.push_back({.name = shard->name,
                          .rows = shard->weights.numel(),
                          .dtype = shard->weights.scalar_type()});
  }
  return parameters;
}

parallel::MakePiece make_pieces(const RunConfig& config, std::span<const parallel::Shard> shards,
                                const Optimizer& optimizer) {
  std::map<std::string, ParameterSettings> settings;
  const auto all = parameter_settings(shards, parse_parameter_groups(config.optimizer.groups),
                                      config.optimizer.weight_decay);
  for (size_t i = 0; i < shards.size(); ++i) settings[shards[i].name] = all[i];
  const std::shared_ptr<const UpdateRule> rule = make_update_rule(config.optimizer);
  return [rule, settings, trained = trained_shards(shards), states = states_of(shards, optimizer),
          first_step = optimizer.num_steps()](const parallel::Piece& piece, int64_t) {
    const parallel::Shard& shard = *trained.at(static_cast<size_t>(piece.parameter));
    const auto cut = [&](const at::Tensor& whole) {
      return whole.detach().reshape({-1}).narrow(0, piece.first_row, piece.rows).clone();
    };
    States mine;
    if (const auto found = states.find(shard.name); found != states.end()) {
      mine.names = found->second.names;
      for (const at::Tensor& whole : found->second.values) mine.values.push_back(cut(whole));
    }
    return parallel::ServedPiece{
        cut(shard.weights).view({-1, 1}),
        std::make_unique<RulePiece>(rule, settings.at(shard.name), std::move(mine), first_step)};
  };
}

void pull_into(parallel::ServerClient& client, std::span<const parallel::Shard> shards,
               const Optimizer& optimizer) {
  const auto trained = trained_shards(shards);
  std::vector<at::Tensor> weights;
  for (const parallel::Shard* const shard : trained) weights.push_back(shard->weights.detach());
  client.pull(0, weights);
  client.wait_all_pulled();
  const auto states = states_of(shards, optimizer);
  for (size_t i = 0; i < trained.size(); ++i) {
    const auto found = states.find(trained[i]->name);
    if (found == states.end()) continue;
    for (size_t k = 0; k < found->second.values.size(); ++k) {
      const at::Tensor& whole = found->second.values[k];
      const at::Tensor pulled = client.pull_state(static_cast<int64_t>(i), static_cast<int64_t>(k));
      whole.copy_(pulled.view(whole.sizes()));
    }
  }
}

}  // namespace trireme::train
