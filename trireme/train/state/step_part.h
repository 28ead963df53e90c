// The parts of a model that a step updates: the dense parameters, by the run's optimizer, and the
// embedding tables, by theirs. The step, saves and resumes loop over the parts and know only
// StepPart.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"
#include "trireme/train/optimizer/optimizer.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/parallel/replica_check.h"
#include "trireme/train/state/places.h"
#include "trireme/train/task/task.h"

namespace trireme::train {

// A checkpoint to resume from.
struct PartSource {
  const std::filesystem::path& path;
  const checkpoint::Summary& saved;
  const FastPlace* place = nullptr;  // where it lies, if it is not in the run's folder
};

// What a load fills in, and what remains to be done then.
struct PartLoad {
  std::vector<checkpoint::Entry> entries{};
  std::vector<checkpoint::Entry> masters{};  // see InitialWeights
  std::vector<std::string> ignored{};        // of the checkpoint, what the part does not need
  std::function<void()> finish = [] {};      // Collective: every rank
};

// Not thread safe. Every function is collective: every rank of the world calls it.
class StepPart {
 public:
  virtual ~StepPart() = default;

  // The parameters' names, and the sum of squares of each one's gradient in the last step, the same
  // on every rank. Without those on parameter servers, of whose gradients nobody has the sums.
  virtual std::vector<std::string> gradient_names() const = 0;
  virtual std::vector<double> gradient_squares() const = 0;

  // Updates the weights from the step's gradients times `factor`, which clips or undoes a loss
  // scale.
  // learning_rate: the run's
  virtual void step(double learning_rate, double factor) = 0;
  // Leaves the weights as they are, in a step that is skipped.
  virtual void discard_gradients() = 0;
  // Sets the number of updates so far, after a load.
  virtual void set_num_steps(int64_t num_steps) = 0;

  // Weights and states to save.
  virtual std::vector<checkpoint::Entry> to_save() = 0;
  // Weights and states to fill in from a checkpoint of this run.
  // Throws: CheckpointError when it cannot fit
  virtual PartLoad to_load(const PartSource& source) = 0;
  // Weights to fill in from another run's or program's, at `weights`; states begin anew.
  virtual PartLoad to_begin(const std::filesystem::path& weights) = 0;

  // Throws: Error on every rank when replicas differ, see replica_check.h
  virtual void check_replicas() const = 0;
};

// The parameters that ranks hold as shards, updated by the run's optimizer, and the modules'
// buffers.

class DensePart : public StepPart {
 public:
  // All of them must outlive it.
  DensePart(const RunConfig& config, ParallelModel& model, Optimizer& optimizer)
      : config_(config), model_(model), optimizer_(optimizer) {}

  std::vector<std::string> gradient_names() const override { return model_.parameter_names(); }
  std::vector<double> gradient_squares() const override { return model_.gradient_squares(); }
  void step(double learning_rate, double factor) override {
    optimizer_.step(learning_rate, factor);
  }
  void discard_gradients() override {}  // the next backward overwrites them
  void set_num_steps(int64_t num_steps) override { optimizer_.set_num_steps(num_steps); }
  std::vector<checkpoint::Entry> to_save() override;
  PartLoad to_load(const PartSource& source) override;
  PartLoad to_begin(const std::filesystem::path& weights) override;
  void check_replicas() const override;

 private:
  const RunConfig& config_;
  ParallelModel& model_;
  Optimizer& optimizer_;
};

// The embedding tables of this rank's stages, updated by their own optimizers. Their rows may be in
// memory, on a disk or on parameter servers.

class TablePart final : public StepPart {
 public:
  // stages: this rank's tables. All else must outlive it. Without tables nothing communicates.
  TablePart(const RunConfig& config, std::vector<StageTables> stages, comm::Communicator& world,
            checkpoint::OnWait on_wait);

  std::vector<std::string> gradient_names() const override;
  std::vector<double> gradient_squares() const override;
  void step(double learning_rate, double factor) override;
  void discard_gradients() override;
  void set_num_steps(int64_t num_steps) override;
  std::vector<checkpoint::Entry> to_save() override;
  PartLoad to_load(const PartSource& source) override;
  PartLoad to_begin(const std::filesystem::path& weights) override;
  void check_replicas() const override;

  // Bytes of rows and states in this rank's memory.
  int64_t memory_bytes() const;
  // Lines of the stages for the user.
  std::vector<std::string> report(RunPoint when) const;

 private:
  std::vector<checkpoint::Entry> closed_entries() const;  // without open vocabularies

  const RunConfig& config_;
  std::vector<StageTables> stages_;
  std::vector<parallel::EmbeddingTables*> all_;  // one per stage
  comm::Communicator& world_;
  checkpoint::OnWait on_wait_;
};

// The tensors of tables and of their optimizers that every rank has whole. Leaves out a tensor that
// is on the disk of any rank: parts of a table may fit into the memory of some ranks and not of
// others.
// Comm:       a byte for each whole tensor, all-gathered, and EmbeddingTables::open_state()
// Collective: every rank of `world`, with the same tables
std::vector<NamedTensor> replicated_tables(std::span<parallel::EmbeddingTables* const> all,
                                           comm::Communicator& world);

}  // namespace trireme::train
