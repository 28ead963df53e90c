// What learners must compute: each trains on one rank, one after the other, and the formulas of
// docs/guide/learners.md are applied to their weights in the simplest form.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/machine/memory_ledger.h"
#include "trireme/comm/communicator.h"
#include "trireme/dataset/batch_reader.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/parallel/learner/named_graph.h"
#include "trireme/train/callbacks/callbacks.h"
#include "trireme/train/config/config.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/run/inputs.h"
#include "trireme/train/state/training_state.h"
#include "trireme/train/step.h"
#include "trireme/train/update_strategy.h"

namespace trireme::train {

// One that exchanges nothing.
class OracleLearner {
 public:
  // given: resolved for a rank per learner, its data open
  // world: this rank
  OracleLearner(RunConfig given, int number, comm::Communicator& world)
      : config_(with_number(std::move(given), number)),
        mesh_(world, mesh_axes(config_.parallel)),
        callbacks_(config_.callbacks, config_, {}),
        state_(config_, mesh_, world, callbacks_, nullptr, {}),
        updates_(world, config_.parallel.learners) {
    state_.build();
    state_.begin();
    batches_.emplace(config_.task->training(), training_batches(config_, mesh_, {}),
                     read_ahead(config_, world, config_.train.steps));
  }

  // Returns the loss.
  double train(int64_t step) {
    StepContext context{config_,        state_.model(),       updates_,
                        state_.parts(), state_.loss_scale(),  state_.bad_steps(),
                        state_.noise(), state_.bad_samples(), *batches_,
                        *memory_};
    return run_step(context, step, [] { return Leave::kNo; }).metrics.loss;
  }
  // The trained weights in the model's order.
  std::vector<std::pair<std::string, at::Tensor>> weights() const {
    std::map<std::string, at::Tensor> by_name;
    for (const parallel::Shard& shard : state_.model().shards()) {
      by_name.emplace(shard.name, shard.weights.detach());
    }
    std::vector<std::pair<std::string, at::Tensor>> all;
    for (const std::string& name : state_.model().parameter_names()) {
      all.emplace_back(name, by_name.at(name));
    }
    return all;
  }
  std::vector<at::Tensor> buffers() const {
    std::vector<at::Tensor> all;
    for (const auto& [name, buffer] : state_.model().buffers()) {
      if (buffer.is_floating_point()) all.push_back(buffer);
    }
    return all;
  }

 private:
  struct Alone final : UpdateStrategy {
    Alone(comm::Communicator& own, int64_t learners) : world(own), num_learners(learners) {}
    comm::Communicator& trainers() const override { return world; }
    int64_t count_terms(ParallelModel& model, int64_t own) override {
      model.use_parts_of_step(num_learners);
      return own;
    }
    comm::Communicator& world;
    int64_t num_learners;
  };

  static RunConfig with_number(RunConfig config, int number) {
    config.learner = number;
    return config;
  }

  std::shared_ptr<MemoryLedger> memory_ = MemoryLedger::make();
  RunConfig config_;
  mesh::DeviceMesh mesh_;
  Callbacks callbacks_;
  TrainingState state_;
  Alone updates_;
  std::optional<dataset::BatchReader> batches_;
};

class LearnerOracle {
 public:
  LearnerOracle(const RunConfig& config, comm::Communicator& world) : outer_(config.outer) {
    const auto n = static_cast<int>(config.parallel.learners);
    for (int i = 0; i < n; ++i) {
      learners_.push_back(std::make_unique<OracleLearner>(config, i, world));
    }
    for (const auto& [name, weight] : learners_[0]->weights()) {
      common_.push_back(weight.clone());
      momentum_.push_back(at::zeros_like(weight));
      num_weights_ += weight.numel();
    }
    arriving_.resize(common_.size());
    if (!outer_.has_common()) {
      graph_ = parallel::make_named_graph(outer_.graph, std::vector<int>(static_cast<size_t>(n)));
    }
  }

  // Returns the losses of the first learner.
  std::vector<double> run(int64_t steps) {
    std::vector<double> losses;
    for (int64_t step = 1; step <= steps; ++step) {
      for (size_t i = 0; i < learners_.size(); ++i) {
        const double loss = learners_[i]->train(step);
        if (i == 0) losses.push_back(loss);
      }
      const c10::NoGradGuard no_grad;
      if (step == steps) {
        finish(step);
      } else {
        exchange(step);
      }
    }
    return losses;
  }
  std::map<std::string, at::Tensor> weights() const {
    const auto all = learners_[0]->weights();
    return {all.begin(), all.end()};
  }

 private:
  struct Sent {
    int64_t fragment = 0;
    int64_t step = 0;
  };

  int64_t stride() const { return outer_.every / outer_.fragments; }
  // -1: none.
  int64_t due(int64_t step) const {
    return step % stride() == 0 ? (step / stride() - 1) % outer_.fragments : -1;
  }
  double n() const { return static_cast<double>(learners_.size()); }

  void exchange(int64_t step) {
    if (sent_ && step == sent_->step + outer_.delay) arrive(1 - outer_.mix);
    if (due(step) < 0) return;
    if (graph_) return mix(due(step), (step / stride() - 1) / outer_.fragments);
    send(due(step), step);
    if (outer_.delay == 0) arrive(0);
  }

  void finish(int64_t step) {
    if (sent_) arrive(1 - outer_.mix);
    for (int64_t fragment = 0; fragment < outer_.fragments; ++fragment) {
      send(fragment, step);
      arrive(0, /*is_mean=*/graph_ || outer_.delay > 0 || due(step) != fragment);
    }
  }

  // Calls visit(i) for each weight of a fragment: those whose middle is in its part of the model.
  template <typename Visit>
  void each_of(int64_t fragment, const Visit& visit) const {
    int64_t before = 0;
    for (size_t i = 0; i < common_.size(); ++i) {
      const int64_t twice_middle = 2 * before + common_[i].numel();
      if (twice_middle * outer_.fragments / (2 * num_weights_) == fragment) visit(i);
      before += common_[i].numel();
    }
  }
  at::Tensor weight(size_t learner, size_t i) const {
    return learners_[learner]->weights()[i].second;
  }

  void send(int64_t fragment, int64_t step) {
    sent_ = {fragment, step};
    each_of(fragment, [&](size_t i) {
      at::Tensor sum = at::zeros_like(common_[i]);
      // With a graph nothing is common, and any weight will do for the mean.
      for (size_t j = 0; j < learners_.size(); ++j) sum += common_[i] - weight(j, i);
      arriving_[i] = sum / n();
    });
  }

  // own_share: of a learner's weights that it keeps
  void arrive(double own_share, bool is_mean = false) {
    const bool is_diloco = outer_.method == OuterMethod::kDiloco && !is_mean;
    const double rate = is_diloco ? outer_.learning_rate : 1, mu = is_diloco ? outer_.momentum : 0;
    const bool is_nesterov = outer_.optimizer == OuterOptimizer::kNesterov;
    each_of(sent_->fragment, [&](size_t i) {
      const at::Tensor& d = arriving_[i];
      if (mu != 0) momentum_[i] = mu * momentum_[i] + d;
      const at::Tensor by = mu == 0 ? d : is_nesterov ? d + mu * momentum_[i] : momentum_[i];
      common_[i] = common_[i] - rate * by;
      for (size_t j = 0; j < learners_.size(); ++j) {
        const at::Tensor mine = weight(j, i);
        mine.copy_((1 - own_share) * common_[i] + own_share * mine);
      }
    });
    if (sent_->fragment == outer_.fragments - 1) average_buffers();
    sent_.reset();
  }

  void mix(int64_t fragment, int64_t round) {
    each_of(fragment, [&](size_t i) {
      std::vector<at::Tensor> before;
      for (size_t j = 0; j < learners_.size(); ++j) before.push_back(weight(j, i).clone());
      for (const parallel::GraphEdge& edge : graph_->round(round)) {
        const auto from = static_cast<size_t>(edge.from), to = static_cast<size_t>(edge.to);
        weight(to, i).add_(edge.weight * (before[from] - before[to]));
      }
    });
  }

  void average_buffers() {
    const std::vector<at::Tensor> first = learners_[0]->buffers();
    for (size_t b = 0; b < first.size(); ++b) {
      at::Tensor sum = at::zeros_like(first[b]);
      for (const auto& learner : learners_) sum += learner->buffers()[b];
      for (const auto& learner : learners_) learner->buffers()[b].copy_(sum / n());
    }
  }

  OuterConfig outer_;
  std::vector<std::unique_ptr<OracleLearner>> learners_;
  std::vector<at::Tensor> common_;
  std::vector<at::Tensor> momentum_;
  std::vector<at::Tensor> arriving_;  // mean differences of what has been sent
  int64_t num_weights_ = 0;
  std::optional<Sent> sent_;
  std::optional<parallel::LearnerGraph> graph_;
};

}  // namespace trireme::train
