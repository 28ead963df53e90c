// A small annotated module that learns to tell points apart: what runs of annotated tasks are
// tested with.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "tests/harness/messages.h"
#include "tests/train/points_run.h"
#include "tests/train/small_run.h"
#include "trireme/mesh/probe.h"
#include "trireme/spmd/local_map.h"
#include "trireme/train/annotated/annotated_task.h"
#include "trireme/train/run/inputs.h"
#include "trireme/train/task/task_metrics.h"

namespace trireme::train {

// Has a parameter under two names, a frozen one, and a buffer.
struct PointsNet : torch::nn::Module {
  PointsNet(int64_t width, double dropout, const std::string& flaw) : drop(dropout), flaw(flaw) {
    first = register_module("first", torch::nn::Linear(4, width));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    up = register_module("up", torch::nn::Linear(width, 2 * width + 1));
    down = register_module("down", torch::nn::Linear(2 * width + 1, width));
    again = register_module("again", torch::nn::Linear(width, width));
    register_parameter("tied", again->weight);
    head = register_module("head", torch::nn::Linear(width, kClasses));
    fixed = register_parameter("fixed", at::rand({width}), /*requires_grad=*/false);
    shift = register_buffer("shift", at::full({width}, 0.25));
    register_module("drop", drop);
    if (flaw == "norm") register_module("batch_norm", torch::nn::BatchNorm1d(width));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = verify::probe("first", at::tanh(first(x)) + shift * fixed);
    const at::Tensor u = verify::probe("up", mistaken(at::gelu(up(norm(h)))));
    const at::Tensor y = verify::probe("middle", h + drop(verify::probe("down", down(u))));
    return head(y + at::linear(at::tanh(again(y)), again->weight));
  }
  // Right on one rank; what local_map() is told is wrong on more.
  at::Tensor mistaken(const at::Tensor& u) const {
    const auto columns = spmd::split(1, "tensor");
    if (flaw == "of halves") {
      return spmd::local_map([](const at::Tensor& x) { return x / x.abs().amax({1}, true); },
                             {columns}, {columns})(u);
    }
    if (flaw == "unsummed") {
      return u + spmd::local_map([](const at::Tensor& x) { return x.sum({1}, true); }, {columns},
                                 {spmd::replicated()})(u);
    }
    return u;
  }
  torch::nn::Linear first{nullptr}, up{nullptr}, down{nullptr}, again{nullptr}, head{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Dropout drop;
  std::string flaw;
  at::Tensor fixed, shift;
};

// The same in three modules, of which a chain is made.
struct EnterNet : torch::nn::Module {
  explicit EnterNet(int64_t width) {
    first = register_module("first", torch::nn::Linear(4, width));
    fixed = register_parameter("fixed", at::rand({width}), /*requires_grad=*/false);
    shift = register_buffer("shift", at::full({width}, 0.25));
  }
  at::Tensor forward(const at::Tensor& x) { return at::tanh(first(x)) + shift * fixed; }
  torch::nn::Linear first{nullptr};
  at::Tensor fixed, shift;
};
struct MiddleNet : torch::nn::Module {
  MiddleNet(int64_t width, double dropout) : drop(dropout) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    up = register_module("up", torch::nn::Linear(width, 2 * width + 1));
    down = register_module("down", torch::nn::Linear(2 * width + 1, width));
    register_module("drop", drop);
  }
  at::Tensor forward(const at::Tensor& h) { return h + drop(down(at::gelu(up(norm(h))))); }
  torch::nn::Linear up{nullptr}, down{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Dropout drop;
};
struct TiedNet : torch::nn::Module {
  explicit TiedNet(int64_t width) {
    again = register_module("again", torch::nn::Linear(width, width));
    register_parameter("tied", again->weight);
  }
  at::Tensor forward(const at::Tensor& y) {
    return y + at::linear(at::tanh(again(y)), again->weight);
  }
  torch::nn::Linear again{nullptr};
};
struct TwoInputs : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) { return x + y; }
};

inline AnnotatedNet points_chain(int64_t width, double dropout, const std::string& flaw) {
  AnnotatedNet net;
  if (flaw == "no link") return net;
  net.add("enter", std::make_shared<EnterNet>(width));
  net.add("middle", std::make_shared<MiddleNet>(width, dropout));
  const auto tied = std::make_shared<TiedNet>(width);
  net.add(flaw == "dot" ? "a.b" : flaw == "same name" ? "enter" : "tied", tied);
  if (flaw == "shared") net.add("shared", tied->again);
  if (flaw == "two inputs") net.add("two", std::make_shared<TwoInputs>());
  net.add("head", torch::nn::Linear(width, kClasses));
  return net;
}

struct AnnotatedConfig {
  TRIREME_KEYS_BEGIN(AnnotatedConfig)
  TRIREME_KEY(int64_t, width, 5, kMustStay, "width", Range{1, 100})
  TRIREME_KEY(double, dropout, 0, kMustStay, "share of zeros", Range{0.0, 0.9})
  TRIREME_KEY(bool, chain, false, kMustStay, "the model is a chain")
  TRIREME_KEY(std::string, flaw, "", kMustStay, "what is wrong with the annotations")
  TRIREME_KEYS_END()
};

class AnnotatedPoints : public AnnotatedTask, public PredictingTask {
 public:
  std::unique_ptr<Task> clone() const override { return std::make_unique<AnnotatedPoints>(*this); }
  void add_keys(Keys& keys) override { keys.add("points", config_); }
  void open(bool evaluates) override { evaluates_ = evaluates; }
  const dataset::Source& training() const override { return points_; }
  const dataset::Source* validation() const override { return evaluates_ ? &points_ : nullptr; }
  TaskTraits traits() const override {
    return {.data_name = "points", .metrics = {{.name = "accuracy"}}};
  }

  AnnotatedNet make_net() const override {
    if (config_.chain) return points_chain(config_.width, config_.dropout, config_.flaw);
    return std::make_shared<PointsNet>(config_.width, config_.dropout, config_.flaw);
  }
  spmd::Annotations annotations() const override {
    using spmd::split;
    spmd::Annotations notes = {.parameters = {{"*up.*", split(0, "tensor")},
                                              {"*down.weight", split(1, "tensor")},
                                              {"*again.weight", split(0, "tensor")},
                                              {"*tied", split(0, "tensor")},
                                              {"*fixed", split(-1, "tensor")}},
                               .inputs = {{"x", split(0, "data")}},
                               .outputs = {{"logits", split(0, "data")}}};
    const std::string& flaw = config_.flaw;
    if (flaw == "none annotated") notes.parameters.clear();
    if (flaw == "cuts") notes.parameters.push_back({"head.bias", split(0, "tensor", {0, 0, 3})});
    if (flaw == "pattern") notes.parameters.push_back({"head.wieght", split(0, "tensor")});
    if (flaw == "twice") notes.parameters.push_back({"up.bias", split(0, "tensor")});
    if (flaw == "dimension") notes.parameters.push_back({"head.bias", split(1, "tensor")});
    if (flaw == "sum") notes.parameters.push_back({"head.bias", spmd::partial("tensor")});
    if (flaw == "data") notes.parameters.push_back({"head.bias", split(0, "data")});
    if (flaw == "axis") notes.parameters.push_back({"head.bias", split(0, "context")});
    if (flaw == "no axis") notes.parameters.push_back({"head.bias", split(0, "tenser")});
    if (flaw == "buffer") notes.parameters.push_back({"shift", split(0, "tensor")});
    if (flaw == "input") notes.inputs = {{"x", split(1, "data")}};
    if (flaw == "inputs") notes.inputs.push_back({"y", spmd::replicated()});
    if (flaw == "outputs") notes.outputs.push_back({"more", spmd::replicated()});
    return notes;
  }
  at::Tensor loss_sum(const at::Tensor& logits_BC, const StageInput& batch) const override {
    return at::nll_loss(at::log_softmax(logits_BC, 1), batch["y"], {}, at::Reduction::Sum);
  }
  at::Tensor metric_states(const at::Tensor& logits_BC, const StageInput& batch) const override {
    return accuracy_state(logits_BC, batch["y"]);
  }
  // Of no inputs: a test has rows of its own.
  std::unique_ptr<Predictor> make_predictor(const PredictRequest& request) override {
    return annotated_predictor(
        request, {.open = [](std::span<const std::string>) { return nullptr; },
                  .answer = [](const at::Tensor& output) { return class_answers(output, {}, 0); }});
  }
  std::unique_ptr<Task> make_answering(const PredictRequest&) override {
    return answering_module();
  }

 private:
  AnnotatedConfig config_;
  Points points_;
  bool evaluates_ = false;
};

inline constexpr TaskKind kAnnotatedTasks[] = {
    {"points", "tell points apart",
     []() -> std::unique_ptr<Task> { return std::make_unique<AnnotatedPoints>(); }}};

// Ranks in all, and settings.
struct AnnotatedLayout {
  std::string name;
  int num_ranks;
  std::vector<Override> settings;
};

class AnnotatedRun : public SmallRun {
 protected:
  RunConfig config(const std::string& run, std::vector<Override> overrides = {}) const {
    overrides.insert(overrides.begin(), {"output.folder", (folder_ / run).string()});
    return parse_config(R"(
[train]
steps = 6
global_batch = 12
micro_batch = 1
precision = "fp64"
evaluate_interval = 3
evaluate_sequences = 40
[optimizer]
learning_rate = 1e-2
warmup_steps = 2
[checkpoint]
interval = 2
)",
                        "test.toml", kAnnotatedTasks, overrides);
  }

  RunConfig config_at(const std::string& run, const AnnotatedLayout& layout,
                      std::vector<Override> more = {}) const {
    more.insert(more.end(), layout.settings.begin(), layout.settings.end());
    return config(run, more);
  }

  // x and y of the samples that the first step reads.
  static std::pair<at::Tensor, at::Tensor> first_batch(const RunConfig& config) {
    const Points points;
    const dataset::SampleOrder order(points.size(), config.data.seed, /*shuffle=*/true);
    std::vector<at::Tensor> x, y;
    for (int64_t n = 0; n < config.train.global_batch; ++n) {
      const dataset::NamedTensors sample = points.get(order.index(n), std::nullopt);
      x.push_back(sample[0].second);
      y.push_back(sample[1].second);
    }
    return {at::stack(x), at::stack(y)};
  }

  // relative: 0: the same bits.
  void expect_same(const std::string& actual, const std::string& expected, double relative) {
    SmallRun::expect_same(
        actual, expected, relative,
        {"loss", "grad_norm", "validation_loss", "accuracy", "validation_accuracy"});
  }

  std::string refusal(std::vector<Override> overrides, int num_ranks = 1) {
    RunConfig broken = config("broken", std::move(overrides));
    return harness::message_of<ConfigError>([&] { open_inputs(broken, num_ranks); });
  }
};

}  // namespace trireme::train
