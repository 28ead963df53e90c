// The tables of a run on parameter servers.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/patterns.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/parameter_servers.h"
#include "trireme/train/state/initial_weights.h"
#include "trireme/train/state/run_state.h"
#include "trireme/train/step_reports.h"

namespace trireme::train {
namespace {

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

TableServers::TableServers(const RunConfig& config, comm::Communicator& world,
                           TrainObserver& observer)
    : ServerStrategy(config, world, observer) {}

void TableServers::prepare(RunConfig& config) {
  find_rows_on_servers(config, servers_.role(),
                       /*reads_ahead=*/config_.parallel.staleness == parallel::kAsynchronous);
}

void TableServers::start(const RunStart& of_root, TrainingState* state) {
  const RunStart start = start_of_root(of_root);
  // A server needs the model only for the list of its tables.
  RunConfig own = config_;
  own.parallel = for_one_rank(own.parallel);
  std::optional<ParallelModel> described;
  on_servers([&] {
    prepare(own);
    described.emplace(own, mesh_, nullptr);
  });
  const std::vector<StageTables>& of_model =
      described ? described->tables() : state->model().tables();
  parallel::EmbeddingTables& tables = *of_model.front().tables;
  tables_ = served_tables(tables);
  servers_.begin(tables_);
  parallel::MakePiece make;
  if (owned_) owned_->own(servers_.own_pieces(), /*first_parameter=*/0);
  on_servers([&] { load_rows(start, config_.init, tables, servers_.role(), tell(observer_)); });
  if (owned_) {
    make = make_table_pieces(tables, owned_, /*first_parameter=*/0, start.optimizer_steps);
  }
  servers_.start(start.step, make);
}

void TableServers::connect(const std::function<bool()>& /*is_stopped*/) {
  client_ = servers_.connect();
  pulled_->use(*client_, tables_, /*first_parameter=*/0);
}

std::string TableServers::report() const {
  return describe(pulled_->counts(), config_.parallel.servers);
}

Outcome TableServers::finish(Outcome outcome) {
  if (client_) {
    client_->leave();
    servers_.role().barrier()->wait();
  }
  return ServerStrategy::finish(outcome);
}

}  // namespace trireme::train
