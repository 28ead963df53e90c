// Saves and loads the rows of embedding tables with open vocabularies. A load must read the ids
// first: they determine how many rows there are and which rank has which.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/comm/communicator.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/places.h"

namespace trireme::train {

// The tensors of EmbeddingTables::open_state(): "<table>.ids" and "<table>.weight" as they are,
// the others behind kOptimizerPrefix. Copies of the rows that are there now.
// Comm, Collective: as open_state()
std::vector<checkpoint::Entry> open_table_entries(parallel::EmbeddingTables& tables);

struct OpenTablesPart {
  parallel::EmbeddingTables* tables = nullptr;
  std::vector<parallel::TableTensor> tensors{};  // as open_state_to_load() makes them
};

// Loads these tables: first the ids, which every rank reads in full, then this rank's rows.
class OpenTablesLoad {
 public:
  // Reads the ids. `all` must outlive it.
  // saved: of the checkpoint `path`
  // place: where it lies, if it is not in the run's folder
  // Collective: every rank of `world`
  // Throws:     on all ranks: CheckpointError when a list of ids is missing or wrong; as
  //             checkpoint::load() and EmbeddingTables::open_state_to_load(), also when only one
  //             rank's disk is full
  OpenTablesLoad(const std::vector<parallel::EmbeddingTables*>& all,
                 const std::filesystem::path& path, const checkpoint::Summary& saved,
                 const FastPlace* place, comm::Communicator& world,
                 const checkpoint::OnWait& on_wait = {});

  // This rank's tensors to fill. Uses that the checkpoint lacks, of a run that evicted other rows,
  // are not among them: each row was used once.
  std::vector<checkpoint::Entry> entries() const;
  // Tensors of the checkpoint that these tables do not need.
  const std::vector<std::string>& ignored() const { return ignored_; }
  // Gives the tables what a load has filled in. EmbeddingTables::set_num_steps() must follow.
  // Collective: every rank of `world`
  // Throws:     on all ranks: as EmbeddingTables::load_open_state()
  void finish(comm::Communicator& world, const checkpoint::OnWait& on_wait = {});

 private:
  std::vector<OpenTablesPart> parts_;
  std::vector<std::string> ignored_;
};

// The tables that a new run takes from a checkpoint of another run: ids and weights. States start
// afresh, no id is waiting, and each row counts as used once, before the first step.
class InitialOpenRows {
 public:
  // Reads the ids of the tables that init.names does not leave out. `all` must outlive it.
  // Collective: every rank of `world`
  // Throws:     on all ranks: as OpenTablesLoad, and SavedTensors
  InitialOpenRows(const std::vector<parallel::EmbeddingTables*>& all,
                  const std::filesystem::path& path, const InitConfig& init,
                  comm::Communicator& world, const checkpoint::OnWait& on_wait = {});

  // This rank's tensors to fill. A table that the checkpoint should have and lacks is among them.
  std::vector<checkpoint::Entry> entries() const { return entries_; }
  void finish();

 private:
  std::vector<checkpoint::Entry> entries_;
  std::vector<OpenTablesPart> parts_;
};

}  // namespace trireme::train
