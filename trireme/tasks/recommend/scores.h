// The loss of a recommendation model, and its metrics.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/dataset/recommend/feature_source.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/tasks/recommend/recommend_network.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks {

// Shapes below: logits as of Network::forward(), label_B [B]
class Scores {
 public:
  virtual ~Scores() = default;
  // The sum of the losses of the samples.
  virtual at::Tensor loss_sum(const at::Tensor& logits, const at::Tensor& label_B) const = 0;
  // The states of metrics_of(), one after the other, in fp64.
  virtual at::Tensor metric_states(const at::Tensor& logits, const at::Tensor& label_B) const = 0;

  // Adds samples of an evaluation, for finish().
  virtual void add(const Samples& samples, const at::Tensor& logits, const at::Tensor& label_B) = 0;
  virtual void clear() = 0;
  // The values of evaluation_metrics_of().
  // Collective: every rank that reads different data
  virtual std::vector<double> finish() = 0;
};

// Logits of bf16 and fp16 in fp32, for losses and metrics; others as they are.
at::Tensor wide(const at::Tensor& logits);

std::vector<train::Metric> metrics_of(const RecommendProblem& problem);
std::vector<std::string> evaluation_metrics_of(const RecommendProblem& problem);

// Scores of samples with labels: clicks, or classes.

// Clicks: the cross-entropy of the logistic function, and the exact area under the ROC curve of
// fp32 scores. Classes: the cross-entropy of softmax.
// group: the ranks with the other samples; null for one rank. Must outlive the scores.
std::unique_ptr<Scores> make_label_scores(const RecommendProblem& problem,
                                          comm::Communicator* group);

// Scores of two-tower retrieval: the place of a query's item among those of its microbatch, and, in
// an evaluation, among all items.

// The k of recall@k.
inline constexpr int64_t kRecallAt[] = {10, 100};

// The inputs of finish(). All must outlive the scores.
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

}  // namespace trireme::tasks
