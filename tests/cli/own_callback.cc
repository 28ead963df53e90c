// A user's program with a callback that keeps numbers and tensors in the checkpoint, and that fails
// where it is told to: own_callback_test.py kills it and resumes it. And with mistakes of a layout
// that `trireme verify` is to find (verify_test.py).
#include <chrono>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trireme/base/error.h"
#include "trireme/cli/program.h"
#include "trireme/tasks/tasks.h"
#include "trireme/train/callbacks/callback.h"

namespace {

using namespace trireme;

enum class Kind { kOther, kConfig, kCheckpoint, kFile };
constexpr Choice<Kind> kKinds[] = {{"other", Kind::kOther},
                                   {"config", Kind::kConfig},
                                   {"checkpoint", Kind::kCheckpoint},
                                   {"file", Kind::kFile}};

struct TallyConfig {
  TRIREME_KEYS_BEGIN(TallyConfig)
  TRIREME_KEY(int64_t, pause_ms, 0, kMayChange, "rest after each step", Range{0, 1000})
  TRIREME_KEY(std::string, fail_in, "", kMayChange, "the event that fails; \"\" = none")
  TRIREME_KEY(int64_t, fail_rank, 0, kMayChange, "the rank on which it fails", Range{0, 1000})
  TRIREME_KEY(Kind, fail_kind, Kind::kOther, kMayChange, "the error's type", kKinds)
  TRIREME_KEYS_END()
};

// Adds up the losses, and each weight over the steps.
class Tally final : public train::Callback {
 public:
  std::unique_ptr<Callback> clone() const override { return std::make_unique<Tally>(*this); }
  void add_keys(train::Keys& keys) override { keys.add("tally", config_); }

  void on_start(train::RunView& run) override { fail_if_told("on_start", run); }
  bool wants_gradients(int64_t /*step*/) const override {
    return config_.fail_in == "on_gradients";
  }
  void on_gradients(train::RunView& run) override { fail_if_told("on_gradients", run); }
  void on_evaluate(train::RunView& run) override { fail_if_told("on_evaluate", run); }
  void on_step(train::RunView& run) override {
    const at::NoGradGuard no_gradient;
    sum_ += run.metrics().loss;
    ++num_steps_;
    for (size_t i = 0; i < sums_.size(); ++i) sums_[i].local.add_(run.shards()[i].weights);
    run.add_metric("tally", sum_);
    run.add_metric("tally_steps", static_cast<double>(num_steps_));
    std::this_thread::sleep_for(std::chrono::milliseconds(config_.pause_ms));
    fail_if_told("on_step", run);
  }
  void on_checkpoint(train::RunView& run, const std::filesystem::path& /*checkpoint*/) override {
    fail_if_told("on_checkpoint", run);
  }
  void on_stop(train::RunView& run) override { fail_if_told("on_stop", run); }

  void build(const std::vector<parallel::Shard>& shards) override {
    sums_.clear();
    for (const parallel::Shard& shard : shards) {
      sums_.push_back({.name = shard.name,
                       .local = at::zeros_like(shard.weights.detach()),
                       .layout = shard.layout,
                       .rank = shard.rank});
    }
  }
  std::vector<checkpoint::Entry> entries() const override { return sums_; }
  std::string state() const override {
    return train::write_state({{"sum", sum_}, {"num_steps", static_cast<double>(num_steps_)}});
  }
  void restore(const std::string& state) override {
    const auto numbers = train::read_state(state, "tally", {"sum", "num_steps"});
    sum_ = numbers.at("sum");
    num_steps_ = train::count_in(numbers, "num_steps", "tally");
  }

 private:
  void fail_if_told(const std::string& event, train::RunView& run) const {
    if (config_.fail_in != event || run.world().rank() != config_.fail_rank) return;
    if (config_.fail_kind == Kind::kConfig) throw ConfigError("a wrong key");
    if (config_.fail_kind == Kind::kCheckpoint) throw CheckpointError("a bad file");
    if (config_.fail_kind == Kind::kFile) throw Error("a full disk");
    throw std::runtime_error("out of luck");
  }

  TallyConfig config_;
  std::vector<checkpoint::Entry> sums_;  // of each shard
  double sum_ = 0;
  int64_t num_steps_ = 0;
};

enum class Mistake { kNone, kWeight, kGradient, kStale, kNan };
constexpr Choice<Mistake> kMistakes[] = {{"none", Mistake::kNone},
                                         {"weight", Mistake::kWeight},
                                         {"gradient", Mistake::kGradient},
                                         {"stale", Mistake::kStale},
                                         {"nan", Mistake::kNan}};

struct MistakeConfig {
  TRIREME_KEYS_BEGIN(MistakeConfig)
  TRIREME_KEY(Mistake, kind, Mistake::kNone, kMayChange, "what goes wrong", kMistakes)
  TRIREME_KEY(std::string, parameter, "", kMayChange, "the parameter with which it does")
  TRIREME_KEY(double, factor, 2, kMayChange, "of what is wrong", Range{-1e3, 1e3})
  TRIREME_KEY(int64_t, step, 1, kMayChange, "nan: the step that computes with it", Range{1, 1000})
  TRIREME_KEYS_END()
};

// A parameter's weights before the first step, its gradient, or its weights after a step are a
// multiple of what they should be; or one of its weights is NaN in a step.
class MistakeInLayout final : public train::Callback {
 public:
  std::unique_ptr<Callback> clone() const override {
    return std::make_unique<MistakeInLayout>(*this);
  }
  void add_keys(train::Keys& keys) override { keys.add("mistake", config_); }
  bool is_on() const override { return config_.kind != Mistake::kNone; }
  bool wants_gradients(int64_t /*step*/) const override {
    return config_.kind == Mistake::kGradient;
  }

  void on_start(train::RunView& run) override {
    if (config_.kind == Mistake::kWeight) scale_weights(run);
    plant_nan(run);
  }
  void on_gradients(train::RunView& run) override {
    const at::NoGradGuard no_gradient;
    for (const parallel::Shard& shard : run.shards()) {
      if (shard.name == config_.parameter) at::Tensor(shard.gradient).mul_(config_.factor);
    }
  }
  void on_step(train::RunView& run) override {
    if (config_.kind == Mistake::kStale && run.step() == 2) scale_weights(run);
    plant_nan(run);
  }

 private:
  void scale_weights(train::RunView& run) const {
    const at::NoGradGuard no_gradient;
    for (const parallel::Shard& shard : run.shards()) {
      if (shard.name == config_.parameter) at::Tensor(shard.weights).mul_(config_.factor);
    }
    run.spread_weights();
  }

  void plant_nan(train::RunView& run) const {
    if (config_.kind != Mistake::kNan || run.step() + 1 != config_.step) return;
    const at::NoGradGuard no_gradient;
    for (const parallel::Shard& shard : run.shards()) {
      if (shard.name != config_.parameter || shard.weights.numel() == 0) continue;
      shard.weights.view({-1}).narrow(0, 0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
    }
    run.spread_weights();
  }

  MistakeConfig config_;
};

constexpr train::CallbackKind kCallbacks[] = {
    {"tally", []() -> std::unique_ptr<train::Callback> { return std::make_unique<Tally>(); }},
    {"mistake",
     []() -> std::unique_ptr<train::Callback> { return std::make_unique<MistakeInLayout>(); }}};

}  // namespace

int main(int argc, char** argv) {
  return cli::run_program(argc, argv, {.tasks = tasks::all_tasks(), .callbacks = kCallbacks});
}
