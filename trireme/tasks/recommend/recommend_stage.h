// A recommendation model in a run: its network, its tables, its loss and its metrics.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/dataset/recommend/feature_source.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/parallel/embedding/step_look_up.h"
#include "trireme/tasks/recommend/recommend_network.h"
#include "trireme/tasks/recommend/recommend_problem.h"
#include "trireme/tasks/recommend/scores.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks {

class RecommendStage : public train::StageModel {
 public:
  // items: the catalogue of two-tower; null when it is not evaluated
  RecommendStage(const RecommendProblem& problem, const train::StageRequest& request,
                 std::shared_ptr<const dataset::ItemCatalogue> items);

  torch::nn::Module& module() override { return *network_; }
  std::vector<parallel::Unit> units() const override { return network_->units(); }
  void run_units_with(parallel::RunUnit run) override { network_->run_unit = std::move(run); }

  void begin_batches(std::span<const dataset::Batch> batches) override;
  void announce_batches(std::span<const dataset::Batch> batches) override;
  void end_backward() override { now_.look_up->backward(); }
  std::vector<at::Tensor> forward(const train::StageInput& in) override;
  int64_t num_terms(const dataset::Batch& batch) const override { return batch.size(); }
  // What the model says of a batch that may lack labels and items. Two-tower: of rows that have the
  // ids of a query and an item.
  // Shapes: -> [B] or [B, classes] as Network::forward(), fp32 at least; two-tower: [B] cosines
  // Collective: every rank of the batch axis
  at::Tensor outputs(const dataset::Batch& batch);
  train::StageTables tables() override {
    return {&tables_, rate_factor_, [this](train::RunPoint when) { return report(when); }};
  }

  void begin_evaluation() override {
    tables_.settle();
    scores_->clear();
  }
  std::vector<double> finish_evaluation() override { return scores_->finish(); }

 private:
  // A look-up that has begun, and its ids.
  struct Started {
    at::Tensor ids;  // of the first microbatch
    std::unique_ptr<parallel::StepLookUp> look_up;
  };
  Started start(std::span<const dataset::Batch> batches);
  // The features of the next microbatch that has begun.
  Samples next_samples(const train::StageInput& in);
  at::Tensor outputs_of(const Samples& samples);

  std::vector<std::string> report(train::RunPoint when) const;
  // Lines of the report at the end; "" for none. Collective.
  std::string report_look_ups() const;
  std::string report_open_rows() const;

  at::ScalarType dtype_;
  at::Device device_;
  comm::Communicator* group_;  // null for one rank
  TableChoice choice_;
  TableList list_;
  std::shared_ptr<Network> network_;
  bool is_two_tower_;
  bool is_answering_;
  parallel::EmbeddingTables tables_;
  double rate_factor_;
  std::unique_ptr<Scores> scores_;

  Started now_;            // look-up of the present batches
  Started next_;           // look-up of the announced batches
  size_t next_batch_ = 0;  // the one whose forward comes next
};

}  // namespace trireme::tasks
