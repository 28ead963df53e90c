// The embedding tables of a model, shared out over ranks: look-ups of jagged ids in many tables at
// once, and an optimizer that updates the rows which a batch has used. Never makes a gradient of a
// whole table, and never sends a rank the same id twice for one batch.
//
// Outputs, gradients, weights and states have the same bits for every placement of the tables and
// every number of ranks, if the batch's samples are the same in the same order: those of rank 0
// first, then those of rank 1, and so on. Ranks may have different numbers of samples, or none. The
// dtype and the operations after the look-up must then give each sample the same gradient too.
// Sources: Mudigere et al. 2022, arXiv:2104.05158, section 4 (placements, sparse optimizers);
//          Ivchenko et al. 2022, "TorchRec: a PyTorch domain library for recommendation systems"
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/embedding/embedding_table.h"
#include "trireme/parallel/embedding/jagged_ids.h"
#include "trireme/parallel/embedding/row_optimizer.h"
#include "trireme/parallel/embedding/table_config.h"

namespace trireme::parallel {

class RemoteRows;

class TableLookUp;

// Small and freely copied.
class StartedLookUp {
 private:
  friend class EmbeddingTables;
  explicit StartedLookUp(std::shared_ptr<TableLookUp> look_up) : look_up_(std::move(look_up)) {}
  std::shared_ptr<TableLookUp> look_up_;
};

// The moment at which rows are updated. kOnStep allows work between backward pass and update, such
// as clipping.
enum class UpdateTime { kInBackward, kOnStep };

struct EmbeddingOptions {
  c10::ScalarType dtype = c10::ScalarType::Float;  // or Double
  uint64_t seed = 0;                               // of the initial values
  RowOptimizerConfig optimizer{};
  UpdateTime update = UpdateTime::kInBackward;
  std::string axis = "data";  // its name in layouts
  // Vectors in transit lie in the group's symmetric memory. Set to false on a host with too little
  // shared memory.
  bool symmetric = true;
  // Who has the rows, instead of this process. Then there is no group, placements do not count, and
  // updates are kOnStep. Each process sums the gradients of its own samples. See
  // rows/stored_rows.h.
  std::shared_ptr<RemoteRows> remote{};
};

struct Embeddings {
  // The pooled tables' vectors side by side, in the order of the tables: [B, W].
  at::Tensor pooled_BW;
  // For each table with Pooling::kNone, one vector per id, [n_t, width].
  std::vector<at::Tensor> apart;
};

// The summed gradient of the rows of one table's part that a batch has used.
struct RowGradients {
  at::Tensor rows;  // [n] int64, in the whole table, distinct, ascending; keys if it is open
  at::Tensor sums;  // [n, width of the part]
};

// The work of look-ups with gradients on this rank, from start() to the update of their rows.
struct TableCounts {
  int64_t num_steps = 0;        // backwards
  int64_t rows_read = 0;        // of this rank's parts, for the look-ups of all ranks
  int64_t gradients_added = 0;  // of these rows: each rank's, one for each of its subtrees
  int64_t sent_bytes = 0;       // to other ranks
  int64_t received_bytes = 0;   // from them
};

// The rows of this rank's parts of the tables with open vocabularies. Of replicated tables rank 0
// counts.
struct OpenRowCounts {
  int64_t rows = 0;     // that are there now
  int64_t begun = 0;    // new rows since the tables were made; so the others
  int64_t expired = 0;  // dropped after open_expire_steps
  int64_t evicted = 0;  // dropped because of open_max_rows
};

// Thread safety: none. Every rank of the group calls the functions below in the same order.
class EmbeddingTables {
 public:
  // group: null for one rank; must outlive the tables
  // Throws: ConfigError, see check_tables(), layout_of(), check_optimizer() and EmbeddingTable; for
  //         remote rows with a group, with kInBackward or with an open vocabulary
  EmbeddingTables(const std::vector<TableConfig>& tables, comm::Communicator* group,
                  const EmbeddingOptions& options = {});
  ~EmbeddingTables();
  EmbeddingTables(EmbeddingTables&&) noexcept;
  EmbeddingTables& operator=(EmbeddingTables&&) noexcept;

  // Sends the batch's ids in the background; they travel while the batch before it computes. The
  // rows are read by finish(), so it does not matter how early the ids are sent. Gradients can come
  // back if at::GradMode is enabled, which must be the same on every rank.
  // Comm:       8 (tables + 1) bytes to each other rank. For each distinct id of a table and each
  //             other rank with a part of its row 4 bytes (8 if the table has more than 2^31 rows
  //             or is open), and ceil(k / 8) more if this rank's samples lie in k > 1 subtrees
  //             (sums/sample_tree.h). For replicated tables only if gradients can come back.
  //             Without them no k. With kRowWiseAdaGrad and a split by columns each rank has a
  //             part: the state of every row.
  // Collective: every rank; returns when all have called it
  // Throws:     ConfigError, see check_ids(), before anything is sent
  [[nodiscard]] StartedLookUp start(JaggedIds ids);
  // Returns the vectors. Their backward sends the gradients and sums them by row. With kInBackward
  // it also updates the rows, and is one step of the optimizer, which sends and may throw as step()
  // does.
  // Comm:       n d itemsize bytes from each other rank that has d columns of n rows for distinct
  //             ids of this one; none for replicated tables. Backward d itemsize bytes to it for
  //             each of these ids and each subtree of this rank's samples that has the id; for
  //             replicated tables to every other rank.
  // Collective: every rank, in forward and in backward, with or without samples
  // Throws:     ConfigError in backward if gradients were disabled in start()
  Embeddings finish(const StartedLookUp& started);
  Embeddings look_up(JaggedIds ids);

  const std::vector<TableConfig>& configs() const;
  const EmbeddingOptions& options() const;
  // Since the tables were made.
  const TableCounts& counts() const;
  OpenRowCounts open_counts() const;

  // Used by the steps that begin from now on.
  // Throws: ConfigError below 0
  void set_learning_rate(double learning_rate);
  // With kOnStep: the gradients since the last step, one of each table. Those of several backwards
  // are added in their order.
  const std::vector<RowGradients>& gradients() const;
  // The sum of squares of each row of gradients(), in double: [n] for each table. Of each row only
  // one rank has it, in the same bits for every placement. The tensor is undefined on other ranks.
  // Comm:       for each row of a table split by columns 8 k bytes to the first rank with columns,
  //             where this rank's columns lie in k subtrees (sums/square_tree.h)
  // Collective: every rank
  std::vector<at::Tensor> gradient_squares() const;
  // With kOnStep: updates the rows from their gradients times `factor`, and forgets the gradients.
  // Pushes them if rows are remote.
  // Comm:       with open_max_rows 8 bytes for each such table to each other rank, and 16 or 24
  //             for each row that must go (open/open_rows.h). With kRowWiseAdaGrad and tables
  //             split by columns k itemsize bytes to each other rank for each of their rows in
  //             gradients(), where this rank's columns lie in k subtrees (sums/square_tree.h).
  // Collective: every rank
  // Throws:     ConfigError on every rank when a table has more rows than it may, with kRefuse. The
  //             tables are of no use afterwards.
  void step(double factor = 1);
  // With kOnStep: forgets the gradients, so that the rows stay as they are.
  void discard_gradients();

  // Before remote rows are evaluated or saved: waits for everybody's pushes. Else does nothing.
  // Collective: every process that pushes
  void settle();

  // Weights and states, for checkpoints. They share memory with the tables, or are on a disk;
  // loading fills them in place. Not collective.
  std::vector<TableTensor> state();
  // The same for the tables with open vocabularies, which state() leaves out: the rows that are
  // there now (OpenTensors), in the order of keys and so of ranks; copies, but for rows on a disk.
  // Comm:       16 bytes for each such table to each other rank
  // Collective: every rank
  std::vector<TableTensor> open_state();
  // Empty tensors for this rank's part of a saved open_state(), whatever ranks saved it. A load
  // fills them, then load_open_state() takes them, then set_num_steps() must follow. Rows that are
  // on a disk now are gone.
  // read: returns the whole saved tensor of a name; called only for lists of ids
  // Throws: CheckpointError when a list of ids is not in the order of keys; ConfigError when they
  //         are more than open_max_rows, with kRefuse
  std::vector<TableTensor> open_state_to_load(
      const std::function<at::Tensor(const std::string& name)>& read);
  // Optimizer states whose `local` is undefined begin anew; without "<table>.uses" each row was
  // used once.
  // Throws: CheckpointError when ids are not of this rank's part or not in order, when one has a
  //         row and waits for one, and for uses below 1
  void load_open_state(const std::vector<TableTensor>& tensors);

  // Bytes of this rank's rows and states in memory.
  int64_t memory_bytes() const;
  // The share of rows that were in memory when a look-up or an update needed them; 1 for a table
  // without a memory limit.
  double hit_rate(size_t table) const;
  int64_t num_steps() const;
  void set_num_steps(int64_t num_steps);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme::parallel
