// Embedding tables on parameter servers: each table is a sparse parameter. Workers pull rows and
// push the gradients of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/parallel/embedding/rows/stored_rows.h"
#include "trireme/parallel/server/server_client.h"
#include "trireme/parallel/server/state/key_ranges.h"

namespace trireme::train {

// The tables of a model as parameters, in the same order.
std::vector<parallel::ServedParameter> served_tables(const parallel::EmbeddingTables& tables);

// Counts of one worker, over steps and evaluations; without checkpoints.
struct PulledCounts {
  int64_t num_steps = 0;
  int64_t rows_pulled = 0;
  int64_t rows_pushed = 0;
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
};
// "tables  on 2 servers; mean per step of worker 0: 3217 rows pulled, ..."; "" without a step.
std::string describe(const PulledCounts& counts, int64_t num_servers);

// A worker's side. Not thread safe.
class PulledRows final : public parallel::RemoteRows {
 public:
  // workers: all that push; each saves a share of the rows. Must outlive this object.
  // reads_ahead: pull the next step's rows before this step's pushes
  PulledRows(comm::Communicator& workers, bool reads_ahead)
      : workers_(workers), reads_ahead_(reads_ahead) {}

  // Pulls rows through `client` from now on.
  // tables: from served_tables(); the first one is parameter number `first_parameter` of the run
  void use(parallel::ServerClient& client, std::vector<parallel::ServedParameter> tables,
           int64_t first_parameter);

  void pull(size_t table, std::span<const int64_t> rows, const at::Tensor& out) override;
  void wait_pulled() override;
  void prefetch(size_t table, std::span<const int64_t> rows) override;
  void push(std::span<const parallel::RowGradients> gradients, double learning_rate) override;
  void settle() override;
  Share saved_share() const override { return {workers_.rank(), workers_.size()}; }
  at::Tensor read(size_t table, size_t tensor, int64_t begin, int64_t end) override;
  void write(size_t table, size_t tensor, int64_t begin, const at::Tensor& values) override;

  PulledCounts counts() const;

 private:
  int64_t parameter_of(size_t table) const {
    return first_parameter_ + static_cast<int64_t>(table);
  }
  int64_t next_step() const { return num_pushed_ + 1; }

  struct Early {  // rows that were requested before their step
    std::vector<int64_t> rows;
    at::Tensor values;
  };

  comm::Communicator& workers_;
  bool reads_ahead_;
  parallel::ServerClient* client_ = nullptr;
  std::vector<parallel::ServedParameter> tables_;
  int64_t first_parameter_ = 0;
  int64_t num_pushed_ = 0;  // steps
  int64_t rows_pulled_ = 0, rows_pushed_ = 0;
  parallel::ClientCounts of_checkpoints_;  // bytes of read()
  std::map<size_t, Early> early_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // (to, from), to make once all is pulled
};

// A server's side, before it starts: holds the rows of its pieces that a checkpoint has.
class OwnedRows final : public parallel::RemoteRows {
 public:
  // The tables' pieces that this server has at the start. Pieces of other parameters are ignored.
  void own(std::span<const parallel::Piece> pieces, int64_t first_parameter);
  // Moves out the loaded rows of a piece, once; empty if none were loaded.
  std::optional<at::Tensor> take(const parallel::Piece& piece, size_t tensor);

  std::vector<mesh::Range> wanted_rows(size_t table) const override;
  void write(size_t table, size_t tensor, int64_t begin, const at::Tensor& values) override;

  // Unused: a server looks nothing up.
  void pull(size_t table, std::span<const int64_t> rows, const at::Tensor& out) override;
  void wait_pulled() override {}
  void prefetch(size_t /*table*/, std::span<const int64_t> /*rows*/) override {}
  void push(std::span<const parallel::RowGradients> gradients, double learning_rate) override;
  void settle() override {}
  at::Tensor read(size_t table, size_t tensor, int64_t begin, int64_t end) override;

 private:
  struct Owned {
    parallel::Piece piece;
    std::map<size_t, at::Tensor> tensors;  // of all its rows
  };
  std::map<std::pair<int64_t, int64_t>, Owned> owned_;  // by parameter and first row
  int64_t first_parameter_ = 0;
};

// Makes pieces of tables with the rows and states in `rows`, or else with initial values.
// RowOptimizer updates them. Takes the rows from `rows`, so it makes each loaded piece once.
// num_steps: steps of the optimizer before this start
parallel::MakePiece make_table_pieces(const parallel::EmbeddingTables& tables,
                                      std::shared_ptr<OwnedRows> rows, int64_t first_parameter,
                                      int64_t num_steps);

}  // namespace trireme::train
