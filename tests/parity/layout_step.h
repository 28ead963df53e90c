// One step of a layout, to compare with that of one rank with the same weights: loss, gradient
// norm, every gradient, and what routers counted. Ranks are threads.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/one_thread.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/parity/gradient_scale.h"
#include "tests/parity/layout_config.h"
#include "tests/parity/step_batches.h"
#include "trireme/base/error.h"
#include "trireme/model/experts/router.h"
#include "trireme/model/family/adapter_config.h"
#include "trireme/model/family/init.h"
#include "trireme/train/config/shares.h"
#include "trireme/train/numerics/gradient_norm.h"
#include "trireme/train/offload/activation_store.h"
#include "trireme/train/parallel/gradient_compression.h"
#include "trireme/train/parallel/overlap_choice.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/state/frozen_model.h"

namespace trireme::train {

// What a step computed, over all ranks.
struct StepOutcome {
  double loss = 0;
  double norm = 0;
  double evaluated = 0;
  std::map<std::string, at::Tensor> gradients;  // whole
  std::vector<double> counts;                   // of the routers
};

inline at::Tensor view_box(const at::Tensor& whole, const mesh::Box& box) {
  at::Tensor view = whole;
  for (size_t d = 0; d < box.size.size(); ++d)
    view = view.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
  return view;
}

// Puts each rank's parts into whole gradients; what several ranks hold must be the same bits. What
// is not trained has none.
inline void collect(const ParallelModel& model, std::map<std::string, at::Tensor>& gradients,
                    std::map<std::string, at::Tensor>& seen) {
  for (const parallel::Shard& shard : model.shards()) {
    if (!shard.is_trained) {
      EXPECT_FALSE(shard.gradient.defined()) << shard.name;
      continue;
    }
    at::Tensor& whole = gradients[shard.name];
    at::Tensor& known = seen[shard.name];
    if (!whole.defined()) {
      whole = at::zeros(shard.layout.whole_shape(), shard.gradient.options());
      known = at::zeros(shard.layout.whole_shape(), at::kBool);
    }
    const mesh::Box box = shard.layout.whole_box(shard.rank);
    const at::Tensor mine = view_box(whole, box), mine_known = view_box(known, box);
    const at::Tensor differs = mine.ne(shard.gradient).logical_and(mine_known);
    EXPECT_FALSE(differs.any().item<bool>()) << "replicas of " << shard.name << " differ";
    mine.copy_(shard.gradient);
    mine_known.fill_(true);
  }
}

// The microbatches of a step that a data rank has.
using BatchesOf = std::function<std::vector<dataset::Batch>(const RunConfig&, int64_t data_rank)>;

// config: shares count if it has any. prepare: may change a rank's parameters before the step.
inline StepOutcome run(RunConfig config, int num_ranks,
                       const std::function<void(ParallelModel&)>& prepare = {},
                       const BatchesOf& read = batches_of) {
  const harness::TemporaryFolder folder;
  config.offload.folder = folder.path();
  std::vector<dataset::Shares> shares = std::move(config.shares);
  resolve(config, num_ranks);
  config.shares = std::move(shares);  // instead of those of a file
  check_layout(config);
  StepOutcome outcome;
  std::map<std::string, at::Tensor> seen;
  std::mutex mutex;
  harness::run_ranks(num_ranks, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, mesh_axes(config.parallel));
    OverlapChoice overlap(config.parallel.async_tensor, world,
                          HiddenCommunication(nullptr, "tensor", mesh.size("tensor")));
    ParallelModel model(config, mesh, make_gradient_hook(config), overlap.flag());
    model.set_input_store(
        make_activation_store(config.offload.activations, folder.path(), config.device));
    if (auto frozen = teacher_config(config)) {
      const auto teacher = std::make_shared<FrozenModel>(*std::move(frozen), mesh, overlap.flag());
      model.use_teacher({teacher, &teacher->model()});
    }
    if (prepare) prepare(model);
    const int64_t data_rank =
        mesh.coordinate("data") * mesh.size("shard") + mesh.coordinate("shard");
    const auto batches = read(config, data_rank);
    // The first sum is the loss; a task's metrics follow.
    const double evaluated = model.sums_over_batches(model.evaluate(batches)).front();
    // What routers learn of a step changes the next one.
    if (config.task->model().traits().num_counts > 0) {
      model.begin_step(batches);
      model.forward_backward(batches, 1.0);
      model.use_counts(model.sum_counts());
      model.end_step();
    }
    const int64_t count = model.begin_step(batches);
    const auto losses = model.forward_backward(batches, 1.0);
    const double loss = model.sums_over_batches(losses).front() / static_cast<double>(count);
    const double norm = gradient_norm(model.gradient_squares());
    const std::vector<double> counts = model.sum_counts();
    const std::lock_guard lock(mutex);
    outcome.loss = loss;
    outcome.norm = norm;
    outcome.counts = counts;
    outcome.evaluated = evaluated / static_cast<double>(count);
    collect(model, outcome.gradients, seen);
  });
  for (const auto& [name, known] : seen) {
    EXPECT_TRUE(known.all().item<bool>()) << "no rank has all of " << name;
  }
  return outcome;
}

// The same step on one rank.
inline RunConfig on_one_rank(RunConfig config) {
  config.parallel = {};
  config.train.recompute = model::Recompute::kNone;
  config.train.recompute_blocks = 0;
  config.offload = {};
  config.shares.clear();
  return config;
}

inline void expect_close(const StepOutcome& actual, const StepOutcome& expected, double relative) {
  EXPECT_NEAR(actual.loss, expected.loss, relative * std::abs(expected.loss));
  EXPECT_NEAR(actual.evaluated, expected.evaluated, relative * std::abs(expected.evaluated));
  EXPECT_NEAR(actual.norm, expected.norm, relative * expected.norm);
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  const auto gradient_of = [&](const std::string& name) { return expected.gradients.at(name); };
  for (const auto& [name, gradient] : expected.gradients) {
    const double bound = relative * gradient_scale(name, gradient_of);
    harness::assert_close(actual.gradients.at(name), gradient, 0, bound, name);
  }
}

inline void expect_same_bits(const StepOutcome& actual, const StepOutcome& expected) {
  EXPECT_EQ(actual.loss, expected.loss);
  EXPECT_EQ(actual.norm, expected.norm);
  for (const auto& [name, gradient] : expected.gradients) {
    harness::assert_same_bits(actual.gradients.at(name), gradient, name);
  }
}

// B of a new adapter is zero, and A then has no gradient; its magnitudes are the rows' lengths.
inline void fill_adapters(ParallelModel& model) {
  for (const parallel::Shard& shard : model.shards()) {
    if (!model::is_of_adapter(shard.name) || shard.name.ends_with(model::kAdapterA)) continue;
    model::initialise(shard.weights, shard.layout.whole_box(shard.rank), shard.layout.whole_shape(),
                      {.std = 0.1}, 7, shard.name);
  }
  model.end_step();  // ZeRO's ranks learn each other's
}

class LayoutsTest : public ::testing::Test {
 protected:
  // shares: samples per forward of each data rank; empty: equal ones.
  void check(const std::vector<Override>& overrides, int num_ranks, double relative = 1e-10,
             const std::vector<int64_t>& shares = {}) {
    SCOPED_TRACE(concat(num_ranks, " ranks: ", describe(overrides), describe_shares(shares)));
    try {
      compare_with_one_rank(overrides, num_ranks, relative, shares);
    } catch (const std::exception& error) {
      // Within the trace: a failure says of which layout it is.
      FAIL() << error.what();
    }
  }

  std::function<void(ParallelModel&)> prepare;  // see run()
  std::function<void(RunConfig&)> configure;    // sets what no key says

 private:
  void compare_with_one_rank(const std::vector<Override>& overrides, int num_ranks, double relative,
                             const std::vector<int64_t>& shares) {
    RunConfig config = config_of(overrides);
    if (configure) configure(config);
    if (!shares.empty()) config.shares = {{0, shares}};
    const StepOutcome actual = run(config, num_ranks, prepare),
                      expected = run(on_one_rank(config), 1, prepare);
    expect_close(actual, expected, relative);
    // fp64's roundings change no routing: tokens of every expert and dropped ones are the same
    // numbers.
    if (config.train.precision != at::kDouble || expected.counts.empty()) return;
    const int64_t E = model_of(config).sparse.experts;
    for (int64_t block = 0; block < model::num_sparse_blocks(model_of(config)); ++block) {
      const auto row = [&](const StepOutcome& outcome) {
        return model::row_of_block(std::span<const double>(outcome.counts), block, E);
      };
      // The last one tells of the layout: what went to copies of experts.
      for (size_t i = 0; i + 1 < row(expected).size(); ++i) {
        const bool is_whole = i < static_cast<size_t>(E) + 2;
        EXPECT_NEAR(row(actual)[i], row(expected)[i],
                    is_whole ? 0 : relative * std::abs(row(expected)[i]))
            << "count " << i << " of sparse block " << block;
      }
    }
  }

  harness::OneThread one_thread_;
};

}  // namespace trireme::train
