// The embedding tables of a rank's stages, as the step and checkpoints use them.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/train/task/task.h"

namespace trireme::train::inline internal {

// Not thread safe. The tables must outlive it.
class ModelTables {
 public:
  // Ignores a stage without tables.
  void add(const StageTables& stage);
  // Of every stage that has some.
  std::vector<parallel::EmbeddingTables*> all() const;

  // Before an evaluation or a save, see EmbeddingTables::settle().
  void settle();

  // The names of the tables' weights, and the sum of squares of each one's gradient; see
  // table_squares(). Without tables on parameter servers, of whose gradients nobody has the sums.
  std::vector<std::string> names() const;
  // Comm, Collective: as table_squares(); nothing without tables
  std::vector<double> gradient_squares(comm::Communicator& world) const;
  // Of rows and states in this rank's memory.
  int64_t memory_bytes() const;
  // What the stages tell the user.
  // Collective: every rank
  std::vector<std::string> report(RunPoint when) const;
  // Updates the rows from the step's gradients times `factor`.
  // learning_rate: the optimizer's
  void step(double learning_rate, double factor);
  // Leaves the rows as they are.
  void discard_gradients();
  // Of the optimizers' steps, after their states were loaded.
  void set_num_steps(int64_t num_steps);

 private:
  std::vector<StageTables> stages_;
};

}  // namespace trireme::train::inline internal
