#include "trireme/tasks/recommend/recommend_stage.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/mesh/probe.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/tasks/recommend/recommend_network.h"
#include "trireme/tasks/recommend/recommend_problem.h"
#include "trireme/tasks/recommend/scores.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {
namespace {

// The ranks that share the tables; null for one rank, or if servers own the tables.
comm::Communicator* table_group(const train::StageRequest& request) {
  return request.config.remote_rows ? nullptr : request.axes.batch.group;
}

int size_of(const train::StageRequest& request) {
  const comm::Communicator* const group = table_group(request);
  return group == nullptr ? 1 : group->size();
}

parallel::EmbeddingOptions table_options(const RecommendProblem& problem,
                                         const train::RunConfig& config) {
  const TablesConfig& tables = problem.config.tables;
  return {.dtype = config.dtype() == at::kDouble ? at::kDouble : at::kFloat,
          .seed = config.train.seed,
          .optimizer = {.rule = tables.optimizer,
                        .beta1 = config.optimizer.beta1,
                        .beta2 = config.optimizer.beta2,
                        .epsilon = tables.epsilon,
                        .initial_accumulator = tables.initial_accumulator},
          .update = parallel::UpdateTime::kOnStep,
          .symmetric = config.train.symmetric_memory,
          .remote = config.remote_rows};
}

TableList limited_tables(const RecommendProblem& problem, const train::StageRequest& request) {
  TableList list = tables_of(problem, size_of(request));
  const bool is_double = request.config.dtype() == at::kDouble;
  const std::string& folder = problem.config.tables.folder;
  limit_memory(problem, size_of(request),
               is_double ? int64_t{sizeof(double)} : int64_t{sizeof(float)},
               folder.empty() ? request.config.output.folder + "/tables" : folder, list);
  return list;
}

// The loop sets the rate before each step.
double rate_factor(const TablesConfig& tables, const train::OptimizerConfig& optimizer) {
  return tables.learning_rate == 0 ? 1 : tables.learning_rate / optimizer.learning_rate;
}

}  // namespace

RecommendStage::RecommendStage(const RecommendProblem& problem, const train::StageRequest& request,
                               std::shared_ptr<const dataset::ItemCatalogue> items)
    : dtype_(request.config.dtype()),
      device_(request.config.device),
      group_(request.axes.batch.group),
      choice_(problem.choice),
      list_(limited_tables(problem, request)),
      network_(make_network(problem, request.config.train.seed)),
      is_two_tower_(problem.is_two_tower()),
      is_answering_(problem.is_answering),
      tables_(list_.tables, table_group(request), table_options(problem, request.config)),
      rate_factor_(rate_factor(problem.config.tables, request.config.optimizer)) {
  network_->to(dtype_);
  network_->recomputes = request.config.train.recompute == model::Recompute::kFull;
  if (problem.is_two_tower()) {
    scores_ = std::make_unique<RetrievalScores>(
        RetrievalParts{static_cast<TwoTower&>(*network_), tables_, list_, std::move(items),
                       request.axes.batch.group, dtype_, device_});
  } else {
    scores_ = make_label_scores(problem, request.axes.batch.group);
  }
}

RecommendStage::Started RecommendStage::start(std::span<const dataset::Batch> batches) {
  std::vector<parallel::JaggedIds> ids;
  for (const dataset::Batch& batch : batches) {
    ids.push_back(ids_of_columns(batch["ids"], batch["lengths"], list_.columns));
  }
  return {batches.front()["ids"], std::make_unique<parallel::StepLookUp>(tables_, std::move(ids))};
}

void RecommendStage::announce_batches(std::span<const dataset::Batch> batches) {
  next_ = start(batches);
}

void RecommendStage::begin_batches(std::span<const dataset::Batch> batches) {
  const bool is_announced = next_.look_up && next_.ids.is_same(batches.front()["ids"]);
  now_ = is_announced ? std::exchange(next_, {}) : start(batches);
  next_batch_ = 0;
}

namespace {

// [B, 1] -> [B]
at::Tensor column(const train::StageInput& in, const char* name) {
  const at::Tensor values = in[name];
  return values.defined() ? values.squeeze(1) : values;
}

}  // namespace

Samples RecommendStage::next_samples(const train::StageInput& in) {
  const parallel::Embeddings found = now_.look_up->at(next_batch_++);
  const at::Tensor dense = in["dense"];
  return {.dense_BF = dense.defined() ? dense.to(dtype_) : dense,
          .embedded_BW = verify::probe("embedded", found.pooled_BW.to(device_, dtype_)),
          .item_B = column(in, "item")};
}

at::Tensor RecommendStage::outputs_of(const Samples& samples) {
  if (is_two_tower_) return static_cast<TwoTower&>(*network_).pair_scores(samples);
  return wide(network_->forward(samples));
}

at::Tensor RecommendStage::outputs(const dataset::Batch& batch) {
  begin_batches({&batch, 1});
  return outputs_of(next_samples({.tensors = batch.tensors}));
}

std::vector<at::Tensor> RecommendStage::forward(const train::StageInput& in) {
  const Samples samples = next_samples(in);
  if (is_answering_) return {outputs_of(samples)};
  const at::Tensor label_B = column(in, "label");
  const at::Tensor logits = network_->forward(samples);
  if (!in.training) scores_->add(samples, logits, label_B);
  return {scores_->loss_sum(logits, label_B), scores_->metric_states(logits.detach(), label_B)};
}

std::vector<std::string> RecommendStage::report(train::RunPoint when) const {
  if (tables_.options().remote) return {};
  if (when == train::RunPoint::kStart) {
    if (choice_.places.empty()) return {};
    return {concat("tables  the planner's choice for ", describe(choice_.places))};
  }
  std::vector<std::string> lines;
  for (const std::string& line : {report_look_ups(), report_open_rows()}) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

std::string RecommendStage::report_look_ups() const {
  if (group_ == nullptr) return "";
  const RankLookUps own = look_ups_of(tables_.counts());
  const at::Tensor mine = at::tensor({own.look_ups, own.sent_bytes}, at::kDouble);
  const at::Tensor all = at::empty({group_->size(), 2}, at::kDouble);
  group_->all_gather(all.unbind(0), mine)->wait();
  std::vector<RankLookUps> measured;
  const auto* number = all.const_data_ptr<double>();
  for (int rank = 0; rank < group_->size(); ++rank, number += 2) {
    measured.push_back({.look_ups = number[0], .sent_bytes = number[1]});
  }
  return compare_look_ups(measured, choice_.predicted);
}

std::string RecommendStage::report_open_rows() const {
  const auto num_open = std::ranges::count_if(list_.tables, &parallel::TableConfig::is_open);
  if (num_open == 0) return "";
  const parallel::OpenRowCounts own = tables_.open_counts();
  const at::Tensor counts = at::tensor({own.rows, own.begun, own.expired, own.evicted}, at::kLong);
  if (group_ != nullptr) group_->all_reduce(counts)->wait();
  const auto* const number = counts.const_data_ptr<int64_t>();
  return concat("tables  ", num_open, " open: ", number[0], " rows in use; since the start ",
                number[1], " begun, ", number[2], " expired, ", number[3], " evicted");
}

}  // namespace trireme::tasks
