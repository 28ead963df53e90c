#include "trireme/train/mixed_run.h"

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/comm/objects.h"
#include "trireme/train/optimizer/name_pattern.h"
#include "trireme/train/parallel/layout.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/state/initial_weights.h"
#include "trireme/train/state/state.h"

namespace trireme::train::inline internal {
namespace {

using nlohmann::json;

// RunStart as text, which the first worker sends to the servers.
json to_json(const RunStart& start) {
  return {{"step", start.step},
          {"optimizer_steps", start.optimizer_steps},
          {"checkpoint", start.checkpoint.string()},
          {"initial_weights", start.initial_weights.string()}};
}

RunStart parse_start(const std::string& text) {
  const json start = json::parse(text);
  return {.step = start.at("step"),
          .optimizer_steps = start.at("optimizer_steps"),
          .checkpoint = start.at("checkpoint").get<std::string>(),
          .initial_weights = start.at("initial_weights").get<std::string>()};
}

// Selects those of `entries` that init.names matches. The checkpoint may lack them, because the
// workers have already checked.
InitConfig only(const std::vector<checkpoint::Entry>& entries, InitConfig init) {
  std::string names;
  for (const checkpoint::Entry& entry : entries) {
    if (matches_any(init.names, entry.name)) names += (names.empty() ? "" : ",") + entry.name;
  }
  init.names = std::move(names);
  init.missing = "*";
  return init;
}

// Fills the rows of this server's pieces.
// Collective: every server
void load_rows(const RunStart& start, const InitConfig& init, parallel::EmbeddingTables& tables,
               comm::Communicator& servers, const checkpoint::OnWait& on_wait) {
  std::vector<checkpoint::Entry> entries = table_entries(tables);
  if (!start.checkpoint.empty()) {
    const std::vector<std::string> all{""};
    checkpoint::load(start.checkpoint, entries, servers, {.ignored = all, .on_wait = on_wait});
  } else if (!start.initial_weights.empty()) {
    std::erase_if(entries, [](const checkpoint::Entry& entry) {
      return entry.name.starts_with(kOptimizerPrefix);
    });
    const InitConfig taken = only(entries, init);
    load_initial_weights(start.initial_weights, taken, {.weights = std::move(entries)}, servers,
                         on_wait, OpenWeights());
  }
}

}  // namespace

MixedRun::MixedRun(RunConfig config, comm::Communicator& world, TrainObserver& observer,
                   const ProfileOptions& profile)
    : config_(std::move(config)), world_(world), observer_(observer), servers_(config_, world) {
  RunConfig own = config_;
  std::shared_ptr<OwnedRows> owned;
  if (servers_.is_server()) {
    own.remote_rows = owned = std::make_shared<OwnedRows>();
  } else {
    const bool reads_ahead = config_.parallel.staleness == parallel::kAsynchronous;
    own.remote_rows = pulled_ = std::make_shared<PulledRows>(servers_.role(), reads_ahead);
  }
  checkpoint::run_or_throw(
      world_,
      [&](const checkpoint::Peers&) {
        if (owned) return;
        trainer_ = std::make_unique<TrainerImpl>(own, servers_.role(), observer, profile);
      },
      tell(observer));
  if (owned) observer_.on_folder();
  const std::string text = trainer_ ? to_json(trainer_->start()).dump() : std::string();
  const RunStart start = parse_start(comm::broadcast_string(world_, text, 0));

  // A server needs the model only for the list of its tables.
  std::unique_ptr<comm::Communicator> self = world_.split(world_.rank(), 0, "alone");
  own.parallel.data = own.parallel.shard = 1;
  own.parallel.zero = 0;
  const mesh::DeviceMesh mesh(*self, mesh_axes(own.parallel));
  std::optional<ParallelModel> described;
  if (owned) described.emplace(own, mesh, nullptr);
  const ModelTables& of_model = owned ? described->tables() : trainer_->tables();
  parallel::EmbeddingTables& tables = *of_model.all().front();
  tables_ = served_tables(tables);
  servers_.begin(tables_);
  parallel::MakePiece make;
  if (owned) {
    owned->own(servers_.own_pieces(), /*first_parameter=*/0);
    load_rows(start, config_.init, tables, servers_.role(), tell(observer));
    make = make_table_pieces(tables, owned, /*first_parameter=*/0, start.optimizer_steps);
  }
  servers_.start(start.step, make);
}

Outcome MixedRun::run(const std::function<bool()>& stop) {
  if (servers_.is_server()) {
    servers_.serve();
    return finish(servers_, Outcome::kFinished, observer_);
  }
  const std::unique_ptr<parallel::ServerClient> client = servers_.connect();
  pulled_->use(*client, tables_, /*first_parameter=*/0);
  const Outcome outcome = trainer_->run(stop);
  const std::string line = describe(pulled_->counts(), config_.parallel.servers);
  if (world_.rank() == 0 && !line.empty()) observer_.on_finding(line);
  client->leave();
  servers_.role().barrier()->wait();
  if (world_.rank() == 0) servers_.end();
  return finish(servers_, outcome, observer_);
}

}  // namespace trireme::train::inline internal
