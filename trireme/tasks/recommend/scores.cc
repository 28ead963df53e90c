#include "trireme/tasks/recommend/scores.h"

#include <algorithm>
#include <iterator>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/tasks/recommend/metrics/click_metrics.h"
#include "trireme/tasks/recommend/metrics/recall.h"
#include "trireme/tasks/recommend/recommend_problem.h"
#include "trireme/train/task/task_metrics.h"

namespace trireme::tasks {

at::Tensor wide(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
}

std::vector<train::Metric> metrics_of(const RecommendProblem& problem) {
  if (problem.is_two_tower()) return {{.name = "batch_accuracy"}};
  if (problem.num_outputs() > 1) return {{.name = "accuracy"}};
  return {
      {.name = "normalised_entropy", .size = kNormalisedEntropySize, .finish = normalised_entropy}};
}

std::vector<std::string> evaluation_metrics_of(const RecommendProblem& problem) {
  if (problem.is_two_tower()) {
    std::vector<std::string> names;
    for (const int64_t k : kRecallAt) names.push_back(concat("recall_at_", k));
    return names;
  }
  if (problem.num_outputs() > 1) return {};
  return {"auc"};
}

namespace {

class ClickScores : public Scores {
 public:
  explicit ClickScores(comm::Communicator* group) : group_(group) {}

  at::Tensor loss_sum(const at::Tensor& logits_B1, const at::Tensor& label_B) const override {
    const at::Tensor logits_B = wide(logits_B1).squeeze(1);
    return at::binary_cross_entropy_with_logits(logits_B, label_B.to(logits_B.scalar_type()), {},
                                                {}, at::Reduction::Sum);
  }
  at::Tensor metric_states(const at::Tensor& logits_B1, const at::Tensor& label_B) const override {
    return normalised_entropy_state(wide(logits_B1).squeeze(1), label_B);
  }
  void add(const Samples& /*samples*/, const at::Tensor& logits_B1,
           const at::Tensor& label_B) override {
    area_.add(logits_B1.squeeze(1).to(at::kFloat), label_B);
  }
  void clear() override { area_.clear(); }
  std::vector<double> finish() override {
    return {group_ == nullptr ? area_.local_area() : area_.gather_area(*group_)};
  }

 private:
  comm::Communicator* group_;
  AreaUnderCurve area_;
};

class ClassScores : public Scores {
 public:
  at::Tensor loss_sum(const at::Tensor& logits_BC, const at::Tensor& label_B) const override {
    return at::cross_entropy_loss(wide(logits_BC), label_B, {}, at::Reduction::Sum);
  }
  at::Tensor metric_states(const at::Tensor& logits_BC, const at::Tensor& label_B) const override {
    return train::accuracy_state(wide(logits_BC), label_B);
  }
  void add(const Samples& /*samples*/, const at::Tensor& /*logits*/,
           const at::Tensor& /*label_B*/) override {}
  void clear() override {}
  std::vector<double> finish() override { return {}; }
};

}  // namespace

std::unique_ptr<Scores> make_label_scores(const RecommendProblem& problem,
                                          comm::Communicator* group) {
  if (problem.num_outputs() > 1) return std::make_unique<ClassScores>();
  return std::make_unique<ClickScores>(group);
}

namespace {

constexpr int64_t kItemsAtOnce = 8192;

at::Tensor own_places(const at::Tensor& logits_BB) {
  return at::arange(logits_BB.size(0), logits_BB.options().dtype(at::kLong));
}

}  // namespace

at::Tensor RetrievalScores::loss_sum(const at::Tensor& logits_BB,
                                     const at::Tensor& /*label_B*/) const {
  return at::cross_entropy_loss(wide(logits_BB), own_places(logits_BB), {}, at::Reduction::Sum);
}

at::Tensor RetrievalScores::metric_states(const at::Tensor& logits_BB,
                                          const at::Tensor& /*label_B*/) const {
  if (logits_BB.size(0) == 0) return at::zeros({2}, at::kDouble);
  return train::accuracy_state(logits_BB, own_places(logits_BB));
}

void RetrievalScores::add(const Samples& samples, const at::Tensor& /*logits_BB*/,
                          const at::Tensor& /*label_B*/) {
  const at::Tensor columns = samples.embedded_BW.narrow(1, 0, parts_.network.query_width());
  queries_.push_back(parts_.network.queries(samples.dense_BF, columns));
  wanted_.push_back(samples.item_B);
}

void RetrievalScores::clear() {
  queries_.clear();
  wanted_.clear();
}

at::Tensor RetrievalScores::vectors_of(int64_t begin, int64_t end) {
  const int64_t B = end - begin, T = std::ssize(parts_.list.columns);
  const auto sample = parts_.items->get(0);
  const int64_t K = dataset::find_tensor(sample, "ids").numel();
  const int64_t num_item_tables = dataset::find_tensor(sample, "lengths").numel();
  const at::Tensor ids_BK = at::zeros({B, K}, at::kLong), lengths_BT = at::zeros({B, T}, at::kLong);
  auto* ids = ids_BK.mutable_data_ptr<int64_t>();
  auto* lengths = lengths_BT.mutable_data_ptr<int64_t>() + T - num_item_tables;
  for (int64_t item = begin; item < end; ++item, ids += K, lengths += T) {
    parts_.items->read(item, {ids, static_cast<size_t>(K)},
                       {lengths, static_cast<size_t>(num_item_tables)});
  }
  const at::Tensor found_BW =
      parts_.tables.look_up(ids_of_columns(ids_BK, lengths_BT, parts_.list.columns)).pooled_BW;
  const int64_t queries = parts_.network.query_width();
  const at::Tensor columns = found_BW.narrow(1, queries, found_BW.size(1) - queries);
  return parts_.network.items(columns.to(parts_.device, parts_.dtype).contiguous());
}

at::Tensor RetrievalScores::own_items() {
  const int64_t num_ranks = parts_.group == nullptr ? 1 : parts_.group->size();
  const int64_t rank = parts_.group == nullptr ? 0 : parts_.group->rank();
  const int64_t N = parts_.items->size(), end = N * (rank + 1) / num_ranks;
  int64_t next = N * rank / num_ranks;
  std::vector<at::Tensor> vectors;
  // Every rank looks up as often as the one with the most items.
  for (int64_t most = (N + num_ranks - 1) / num_ranks; most > 0; most -= kItemsAtOnce) {
    const int64_t now = std::min(kItemsAtOnce, end - next);
    vectors.push_back(vectors_of(next, next + now));
    next += now;
  }
  return at::cat(vectors);
}

std::vector<double> RetrievalScores::finish() {
  const at::NoGradGuard guard;
  const at::Tensor items_nD = own_items();
  // An evaluation without samples on this rank has queries of no width.
  const at::Tensor queries_BD =
      queries_.empty() ? at::empty({0, items_nD.size(1)}, items_nD.options()) : at::cat(queries_);
  const at::Tensor wanted_B = wanted_.empty() ? at::empty({0}, at::kLong) : at::cat(wanted_);
  const at::Tensor places_B = parts_.group == nullptr
                                  ? places_of(queries_BD, items_nD, wanted_B)
                                  : gather_places(*parts_.group, queries_BD, items_nD, wanted_B);
  std::vector<double> values;
  for (const int64_t k : kRecallAt) {
    const at::Tensor state = recall_state(places_B, k);
    if (parts_.group != nullptr) parts_.group->all_reduce(state)->wait();
    values.push_back(train::mean_of({state.const_data_ptr<double>(), 2}));
  }
  return values;
}

}  // namespace trireme::tasks
