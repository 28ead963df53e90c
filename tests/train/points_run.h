// A small chain of modules that learns to tell points apart: what runs of chains are tested with.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "tests/harness/messages.h"
#include "tests/train/small_run.h"
#include "trireme/base/error.h"
#include "trireme/model/layers/batch_norm.h"
#include "trireme/train/chain_task.h"
#include "trireme/train/run/inputs.h"
#include "trireme/train/task/task_metrics.h"

namespace trireme::train {

inline constexpr int64_t kClasses = 3;

// How long the calling thread, and so a rank without readers, takes to read a point.
inline thread_local std::chrono::milliseconds point_time{0};

// Points in four dimensions; their class is where a hyperplane puts them.
class Points : public dataset::Source {
 public:
  // bad_every: samples 1, 1 + bad_every, ... cannot be read; 0: all can
  explicit Points(int64_t bad_every = 0) : bad_every_(bad_every) {}
  int64_t size() const override { return 40; }
  dataset::NamedTensors get(int64_t index, std::optional<RandomKey> /*key*/) const override {
    std::this_thread::sleep_for(point_time);
    TRIREME_CHECK(bad_every_ == 0 || index % bad_every_ != 1, "point ", index, " is damaged");
    const at::Tensor x = at::sin(at::arange(4, at::kDouble) * 0.7 + static_cast<double>(index));
    const auto label = static_cast<int64_t>((x.sum().item<double>() + 4) * kClasses / 8);
    return {{"x", x}, {"y", at::scalar_tensor(label, at::kLong)}};
  }

 private:
  int64_t bad_every_;
};

struct PointsConfig {
  TRIREME_KEYS_BEGIN(PointsConfig)
  TRIREME_KEY(int64_t, hidden, 5, kMustStay, "width", Range{1, 100})
  TRIREME_KEY(bool, batch_norm, false, kMustStay, "the model has buffers")
  TRIREME_KEY(int64_t, bad_every, 0, kMayChange, "which samples cannot be read", Range{0, 100})
  TRIREME_KEY(std::string, flaw, "", kMustStay, "what is wrong with the model")
  TRIREME_KEY(bool, deferred, false, kMayChange, "links are functions that make modules")
  TRIREME_KEYS_END()
};

struct Layer : torch::nn::Module {
  Layer(int64_t in, int64_t out, bool has_activation) : has_activation(has_activation) {
    linear = register_module("linear", torch::nn::Linear(in, out));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = linear(x);
    return has_activation ? at::tanh(y) : y;
  }
  bool has_activation;
  torch::nn::Linear linear{nullptr};
};

// Has a buffer that never changes, and a parameter in a module of its own.
struct Shift : torch::nn::Module {
  explicit Shift(int64_t width) {
    shift = register_module("shift", torch::nn::Linear(width, width));
    constant = shift->register_buffer("constant", at::full({width}, 0.25));
  }
  at::Tensor forward(const at::Tensor& x) { return shift(x) + constant; }
  torch::nn::Linear shift{nullptr};
  at::Tensor constant;
};

// A model whose list of parameters has one too many ("ghost") or one too few ("gap").
class FlawedModel : public TaskModel {
 public:
  FlawedModel(const TaskModel& right, const std::string& flaw) : right_(right), flaw_(flaw) {}
  ModelTraits traits() const override { return right_.traits(); }
  void check(const RunConfig& config) const override { right_.check(config); }
  std::vector<model::ParameterPlan> parameters(model::AxisSizes sizes) const override {
    std::vector<model::ParameterPlan> plan = right_.parameters(sizes);
    if (flaw_ == "ghost") {
      plan.push_back({"ghost.weight", mesh::Layout({3}, {{"tensor", sizes.tensor}})});
    }
    if (flaw_ == "gap") plan.pop_back();
    return plan;
  }
  std::vector<parallel::LayerCost> layer_costs(const RunConfig& config) const override {
    return right_.layer_costs(config);
  }
  std::vector<StageEdges> edges(int num_stages) const override { return right_.edges(num_stages); }
  std::unique_ptr<StageModel> make_stage(const StageRequest& request) const override {
    return right_.make_stage(request);
  }

 private:
  const TaskModel& right_;
  const std::string& flaw_;
};

class PointsTask : public ChainTask {
 public:
  PointsTask() = default;
  PointsTask(const PointsTask& other)
      : ChainTask(other),
        config_(other.config_),
        points_(other.points_),
        evaluates_(other.evaluates_) {}
  const TaskModel& model() const override { return model_; }
  std::unique_ptr<Task> clone() const override { return std::make_unique<PointsTask>(*this); }
  void add_keys(Keys& keys) override { keys.add("points", config_); }
  void open(bool evaluates) override {
    evaluates_ = evaluates;
    points_ = Points(config_.bad_every);
  }
  const dataset::Source& training() const override { return points_; }
  const dataset::Source* validation() const override { return evaluates_ ? &points_ : nullptr; }
  TaskTraits traits() const override {
    std::vector<Metric> all = {
        {.name = "accuracy"},
        {.name = "count", .size = 1, .finish = [](std::span<const double> s) { return s[0]; }}};
    if (config_.flaw == "undefined") all.push_back({.name = "nothing"});
    return {.data_name = "points", .metrics = std::move(all)};
  }

  Chain make_chain() const override {
    Chain chain;
    const int64_t H = config_.hidden;
    if (config_.deferred) {
      chain.add("first", [H] { return std::make_shared<Layer>(4, H, true); });
      chain.add("norm", [H] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({H})); });
      chain.add("second", [H] { return std::make_shared<Layer>(H, H, true); });
      chain.add("head", [H] { return std::make_shared<Layer>(H, kClasses, false); });
      return chain;
    }
    const auto first = std::make_shared<Layer>(4, H, true);
    chain.add("first", first);
    chain.add("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({H})));
    chain.add(config_.flaw == "name" ? "first" : "second", std::make_shared<Layer>(H, H, true));
    if (config_.flaw == "shared") chain.add("again", first);
    if (config_.flaw == "torch norm") chain.add("batch_norm", torch::nn::BatchNorm1d(H));
    if (config_.batch_norm) {
      chain.add("more.norm", model::BatchNorm(H), {.flops = 1});
      chain.add("", std::make_shared<Shift>(H));
    }
    chain.add("head", std::make_shared<Layer>(H, kClasses, false));
    if (config_.flaw == "empty") return {};
    return chain;
  }
  at::Tensor loss_sum(const at::Tensor& logits_BC, const StageInput& batch) const override {
    return at::nll_loss(at::log_softmax(logits_BC, 1), batch["y"], {}, at::Reduction::Sum);
  }
  at::Tensor metric_states(const at::Tensor& logits_BC, const StageInput& batch) const override {
    std::vector<at::Tensor> states = {
        accuracy_state(logits_BC, batch["y"]),
        at::full({1}, static_cast<double>(logits_BC.size(0)), at::kDouble)};
    if (config_.flaw == "undefined") states.push_back(at::zeros({2}, at::kDouble));
    return at::cat(states);
  }

 private:
  PointsConfig config_;
  Points points_;
  bool evaluates_ = false;
  FlawedModel model_{ChainTask::model(), config_.flaw};
};

inline constexpr TaskKind kTasks[] = {
    {"points", "tell points apart",
     []() -> std::unique_ptr<Task> { return std::make_unique<PointsTask>(); }}};

class PointsRun : public SmallRun {
 protected:
  RunConfig config(const std::string& run, std::vector<Override> overrides = {}) const {
    overrides.insert(overrides.begin(), {"output.folder", (folder_ / run).string()});
    return parse_config(R"(
[train]
steps = 6
global_batch = 8
micro_batch = 2
precision = "fp64"
evaluate_interval = 3
evaluate_sequences = 40
[optimizer]
learning_rate = 1e-2
warmup_steps = 2
[checkpoint]
interval = 2
)",
                        "test.toml", kTasks, overrides);
  }

  // fp64 sums of a few dozen terms in another order; 0: the same bits.
  void expect_same(const std::string& actual, const std::string& expected, double relative) {
    SmallRun::expect_same(actual, expected, relative,
                          {"loss", "grad_norm", "validation_loss", "accuracy", "count",
                           "validation_accuracy", "validation_count"});
  }

  std::string refusal(std::vector<Override> overrides, int num_ranks = 1) {
    RunConfig broken = config("broken", std::move(overrides));
    return harness::message_of([&] {
      open_inputs(broken, num_ranks);
      run(broken, num_ranks);
    });
  }
};

}  // namespace trireme::train
