#include "tests/mutations/mutation_callback.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "tests/mutations/made.h"
#include "trireme/base/error.h"
#include "trireme/base/patterns.h"

namespace trireme::mutations {
namespace {

using train::RunView;

struct MutationConfig {
  TRIREME_KEYS_BEGIN(MutationConfig)
  TRIREME_KEY(std::string, name, "", kMayChange, "the mistake that the run makes; \"\" = none")
  TRIREME_KEYS_END()
};

// The same tensors as of `run`'s shards that the mutation is about.
std::vector<parallel::Shard> meant(RunView& run, const Mutation& mutation) {
  std::vector<parallel::Shard> shards;
  for (const parallel::Shard& shard : run.shards()) {
    if (matches(std::string(mutation.pattern), shard.name)) shards.push_back(shard);
  }
  return shards;
}

class MutationCallback final : public train::Callback {
 public:
  std::unique_ptr<Callback> clone() const override {
    return std::make_unique<MutationCallback>(*this);
  }
  void add_keys(train::Keys& keys) override { keys.add("mutation", config_); }
  bool is_on() const override { return !config_.name.empty(); }
  bool works_in_learners() const override { return true; }
  void check(const train::RunConfig& /*config*/,
             std::span<const std::string> /*metrics*/) const override {
    TRIREME_CHECK(find_mutation(config_.name) != nullptr, "mutation.name is \"", config_.name,
                  "\"; expected a name of `mutations table`");
  }

  void on_start(RunView& run) override {
    const at::NoGradGuard no_gradient;
    mutation_ = find_mutation(config_.name);
    if (mutation_->mistake == Mistake::kSwappedLayers) swap_layers(run);
    keep_weights(run);
    made().mutation = mutation_;
    made().step = run.step() + 1;
  }
  bool wants_gradients(int64_t /*step*/) const override {
    const Mutation* const mutation = find_mutation(config_.name);
    if (mutation == nullptr) return false;
    switch (mutation->mistake) {
      case Mistake::kGradient:
      case Mistake::kGradientRow:
      case Mistake::kGradientHalf:
      case Mistake::kGradientAdded:
      case Mistake::kReportedNorm: return true;
      default: return false;
    }
  }
  void on_gradients(RunView& run) override {
    const at::NoGradGuard no_gradient;
    if (mutation_->mistake == Mistake::kReportedNorm) return sum_squares(run);
    for (const parallel::Shard& shard : meant(run, *mutation_)) change_gradient(shard, run);
  }
  void on_step(RunView& run) override {
    const at::NoGradGuard no_gradient;
    report(run);
    if (mutation_->mistake == Mistake::kUpdate) change_update(run);
    made().step = run.step() + 1;
    at::Tensor times = at::full({1}, made().times.load(), at::kLong);
    run.world().all_reduce(times)->wait();
    run.add_metric("mutations_made", static_cast<double>(times.item<int64_t>()));
  }
  void on_stop(RunView& /*run*/) override { made().step = 0; }

 private:
  void change_gradient(const parallel::Shard& shard, RunView& run) {
    const at::Tensor& gradient = shard.gradient;
    if (!gradient.defined() || gradient.numel() == 0) return;
    if (mutation_->mistake == Mistake::kGradientRow) {
      if (run.world().rank() == 0) return;
      gradient.narrow(0, 0, 1).mul_(mutation_->factor);
    } else if (mutation_->mistake == Mistake::kGradientHalf) {
      const int64_t length = gradient.numel();
      gradient.view({-1}).narrow(0, length / 2, length - length / 2).zero_();
    } else if (mutation_->mistake == Mistake::kGradientAdded) {
      at::Tensor& before = before_[shard.name];
      const at::Tensor own = gradient.clone();
      if (!before.defined()) {
        before = own;
        return;
      }
      gradient.add_(before);
      before = own;
    } else {
      gradient.mul_(mutation_->factor);
    }
    ++made().times;
  }

  // Of the gradients that the norm does not count as it should, over all ranks.
  void sum_squares(RunView& run) {
    at::Tensor sum = at::zeros({1}, at::kDouble);
    for (const parallel::Shard& shard : meant(run, *mutation_)) {
      if (!shard.gradient.defined() || !run.counts(shard)) continue;
      sum += (shard.gradient.to(at::kDouble) * run.gradient_factor()).square().sum();
    }
    run.world().all_reduce(sum)->wait();
    squares_ = sum.item<double>();
  }

  // A callback may only read the metrics. This one is to be wrong.
  void report(RunView& run) const {
    auto& metrics = const_cast<train::StepMetrics&>(run.metrics());
    if (mutation_->mistake == Mistake::kReportedLoss) {
      metrics.loss *= mutation_->factor;
      ++made().times;
    }
    if (mutation_->mistake == Mistake::kReportedNorm) {
      const double square = metrics.grad_norm * metrics.grad_norm + mutation_->factor * squares_;
      metrics.grad_norm = std::sqrt(std::max(0.0, square));
      ++made().times;
    }
  }

  void swap_layers(RunView& run) const {
    std::map<std::string, at::Tensor> weights;
    for (const parallel::Shard& shard : run.shards()) weights[shard.name] = shard.weights.detach();
    for (const auto& [name, values] : weights) {
      const size_t at = name.find("layers.1.");
      if (at == std::string::npos) continue;
      const auto other = weights.find(std::string(name).replace(at, 9, "layers.0."));
      if (other == weights.end() || other->second.sizes() != values.sizes()) continue;
      values.copy_(other->second);
      ++made().times;
    }
    run.spread_weights();
  }

  void keep_weights(RunView& run) {
    if (mutation_->mistake != Mistake::kUpdate) return;
    for (const parallel::Shard& shard : meant(run, *mutation_)) {
      before_[shard.name] = shard.weights.detach().clone();
    }
  }

  void change_update(RunView& run) {
    for (const parallel::Shard& shard : meant(run, *mutation_)) {
      const at::Tensor& before = before_.at(shard.name);
      const at::Tensor weights = shard.weights.detach();
      weights.copy_(before + (weights - before) * mutation_->factor);
      ++made().times;
    }
    run.spread_weights();
    keep_weights(run);
  }

  MutationConfig config_;
  const Mutation* mutation_ = nullptr;
  std::map<std::string, at::Tensor> before_;  // the last step's gradients or weights
  double squares_ = 0;                        // of the last step
};

}  // namespace

std::unique_ptr<train::Callback> make_mutation_callback() {
  return std::make_unique<MutationCallback>();
}

}  // namespace trireme::mutations
