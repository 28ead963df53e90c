// Scores of two-tower retrieval: the place of a query's item among those of its microbatch, and, in
// an evaluation, among all items.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/dataset/recommend/feature_source.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/tasks/recommend/scores.h"
#include "trireme/tasks/recommend/two_tower.h"

namespace trireme::tasks::inline internal {

// The k of recall@k.
inline constexpr int64_t kRecallAt[] = {10, 100};

// What finish() needs. All must outlive the scores.
struct RetrievalParts {
  TwoTower& network;
  parallel::EmbeddingTables& tables;
  const TableList& list;
  std::shared_ptr<const dataset::ItemCatalogue> items;
  comm::Communicator* group = nullptr;  // the ranks with the other samples; null for one rank
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

class RetrievalScores : public Scores {
 public:
  explicit RetrievalScores(RetrievalParts parts) : parts_(std::move(parts)) {}

  at::Tensor loss_sum(const at::Tensor& logits_BB, const at::Tensor& label_B) const override;
  at::Tensor metric_states(const at::Tensor& logits_BB, const at::Tensor& label_B) const override;
  void add(const Samples& samples, const at::Tensor& logits_BB, const at::Tensor& label_B) override;
  void clear() override;
  // Each rank computes the vectors of part of the items.
  // Memory: D numbers for each of these items, and for each query of the evaluation
  // Comm:   one look-up of each item; and that of gather_places()
  std::vector<double> finish() override;

 private:
  // The vectors of this rank's part of the items, [n, D].
  at::Tensor own_items();
  at::Tensor vectors_of(int64_t begin, int64_t end);

  RetrievalParts parts_;
  std::vector<at::Tensor> queries_;  // of the evaluation, [B, D] each
  std::vector<at::Tensor> wanted_;   // [B] the numbers of their items
};

}  // namespace trireme::tasks::inline internal
