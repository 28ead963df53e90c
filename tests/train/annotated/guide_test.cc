// The code of docs/guide/annotated-tasks.md, which is what stands between the lines of this file.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include "tests/harness/guide_code.h"
#include "tests/train/points_run.h"
#include "trireme/train/annotated/annotated_task.h"

namespace trireme::train {
namespace {

struct Net : torch::nn::Module {
  explicit Net(int64_t width) {
    fc1 = register_module("fc1", torch::nn::Linear(4, width));
    fc2 = register_module("fc2", torch::nn::Linear(width, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return fc2(at::gelu(fc1(x))); }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};

struct DigitsConfig {
  TRIREME_KEYS_BEGIN(DigitsConfig)
  TRIREME_KEY(int64_t, width, 8, kMustStay, "width", Range{1, 100})
  TRIREME_KEYS_END()
};

// Of a test: there are none.
std::unique_ptr<dataset::RowSource> open_points(std::span<const std::string> /*paths*/) {
  return nullptr;
}

class Digits : public AnnotatedTask {
 public:
  std::unique_ptr<Task> clone() const override { return std::make_unique<Digits>(*this); }
  void add_keys(Keys& keys) override { keys.add("points", config_); }
  void open(bool evaluates) override { evaluates_ = evaluates; }
  const dataset::Source& training() const override { return points_; }
  const dataset::Source* validation() const override { return evaluates_ ? &points_ : nullptr; }
  TaskTraits traits() const override { return {.data_name = "points"}; }

  AnnotatedNet make_net() const override { return std::make_shared<Net>(config_.width); }
  spmd::Annotations annotations() const override {
    return {.parameters = {{"fc1.*", spmd::split(0, "tensor")},
                           {"fc2.weight", spmd::split(1, "tensor")}},
            .inputs = {{"x", spmd::split(0, "data")}}};
  }
  at::Tensor loss_sum(const at::Tensor& logits, const StageInput& batch) const override {
    return at::nll_loss(at::log_softmax(logits, 1), batch["y"], {}, at::Reduction::Sum);
  }

 protected:
  DigitsConfig config_;

 private:
  Points points_;
  bool evaluates_ = false;
};

class DigitsChain : public Digits, public PredictingTask {
 public:
  std::unique_ptr<Task> clone() const override { return std::make_unique<DigitsChain>(*this); }
  AnnotatedNet make_net() const override {
    AnnotatedNet net;
    net.add("fc1", torch::nn::Linear(4, config_.width));
    net.add("gelu", torch::nn::GELU());
    net.add("fc2", torch::nn::Linear(config_.width, 3));
    return net;
  }
  std::unique_ptr<Predictor> make_predictor(const PredictRequest& request) override {
    return annotated_predictor(request, {.open = [](auto paths) { return open_points(paths); },
                                         .answer =
                                             [top = request.top](const at::Tensor& logits) {
                                               return class_answers(logits, {}, top);
                                             }});
  }
  std::unique_ptr<Task> make_answering(const PredictRequest& /*request*/) override {
    return answering_module();
  }
};

constexpr TaskKind kDigits[] = {
    {"digits", "read digits", []() -> std::unique_ptr<Task> { return std::make_unique<Digits>(); }},
    {"chain", "the same in links",
     []() -> std::unique_ptr<Task> { return std::make_unique<DigitsChain>(); }}};

class AnnotatedTasksGuide : public SmallRun {};

TEST_F(AnnotatedTasksGuide, HasTheCodeOfThisTest) {
  harness::expect_code_of(TRIREME_ANNOTATED_GUIDE,
                          TRIREME_SOURCE_DIR "/tests/train/annotated/guide_test.cc", 25);
}

TEST_F(AnnotatedTasksGuide, ItsTaskTrains) {
  const auto config = [&](const std::string& name, std::vector<Override> more) {
    more.insert(more.begin(), {{"output.folder", (folder_ / name).string()},
                               {"train.steps", "8"},
                               {"train.global_batch", "8"},
                               {"train.micro_batch", "2"},
                               {"train.precision", "fp64"},
                               {"optimizer.learning_rate", "1e-2"},
                               {"optimizer.warmup_steps", "1"}});
    return parse_config("", "test.toml", kDigits, more);
  };
  run(config("one", {}), 1);
  run(config("four", {{"parallel.tensor", "2"}, {"parallel.zero", "1"}}), 4);
  expect_same("four", "one", 1e-10, {"loss", "grad_norm"});
  const Override chain = {"task.name", "chain"};
  run(config("chain", {chain}), 1);
  expect_same("chain", "one", 0, {"loss", "grad_norm"});
  run(config("stages", {chain, {"parallel.tensor", "2"}, {"parallel.pipeline", "2"}}), 4);
  expect_same("stages", "one", 1e-10, {"loss", "grad_norm"});
  EXPECT_LT(metrics("one").back()["loss"], metrics("one").front()["loss"]);
}

}  // namespace
}  // namespace trireme::train
