#include "trireme/train/learner/decoupled_state.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/train/text_run.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/run/inputs.h"

namespace trireme::train {
namespace {

class DecoupledStateTest : public TextRun {
 protected:
  // One learner of two, and its state.
  template <typename Function>
  void with_learner(const std::vector<Override>& overrides, const Function& function) {
    std::vector<Override> all = overrides;
    all.insert(
        all.end(),
        {{"parallel.learners", "2"}, {"parallel.servers", "1"}, {"outer.method", "decoupled"}});
    RunConfig config = TextRun::config("run", all);
    open_inputs(config, 3);
    harness::run_ranks(1, [&](comm::Communicator& world) {
      const mesh::DeviceMesh mesh(world, mesh_axes(config.parallel));
      Callbacks callbacks(config.callbacks, config, {});
      TrainingState state(config, mesh, world, callbacks, nullptr, {});
      state.build();
      DecoupledState learner(config, state, 1);
      const c10::NoGradGuard no_grad;
      function(state, learner);
    });
  }
};

TEST_F(DecoupledStateTest, AnExchangeKeepsTheShareOfItsOwnThatItIsTold) {
  with_learner({{"outer.fragments", "2"}, {"outer.every", "2"}},
               [](TrainingState&, DecoupledState& learner) {
                 ASSERT_FALSE(learner.of_fragment(0).empty());
                 ASSERT_FALSE(learner.of_fragment(1).empty());
                 EXPECT_EQ(learner.of_fragment(0).size() + learner.of_fragment(1).size(),
                           learner.weights().size());
                 for (const auto& weight : learner.weights()) {
                   weight.live().copy_(weight.base + 1);
                   weight.common.copy_(weight.base + 4);
                 }
                 for (const auto& [i, difference] : learner.differences(1).by_weight) {
                   EXPECT_TRUE(difference.allclose(at::full_like(difference, -1), 0, 1e-5)) << i;
                 }
                 const at::Tensor before = learner.weights()[0].base.clone();
                 learner.take(0, 0.5);
                 const auto& taken = learner.weights()[learner.of_fragment(0)[0]];
                 EXPECT_TRUE(taken.base.equal(taken.common));
                 EXPECT_TRUE(taken.live().allclose(before + 2.5, 0, 1e-5));
                 const auto& other = learner.weights()[learner.of_fragment(1)[0]];
                 EXPECT_FALSE(other.base.equal(other.common)) << "another fragment";
               });
}

TEST_F(DecoupledStateTest, WhatIsNotFiniteIsNotSent) {
  with_learner({{"outer.wire", "int8"}}, [](TrainingState& state, DecoupledState& learner) {
    const auto& first = learner.weights()[0];
    first.residual.fill_(1);
    EXPECT_TRUE(learner.differences(0).is_finite);
    first.live().view({-1})[0] = std::numeric_limits<double>::quiet_NaN();
    for (const checkpoint::Entry& entry : state.optimizer().state()) entry.local.fill_(3);
    const DecoupledState::Differences found = learner.differences(0);
    EXPECT_FALSE(found.is_finite);
    for (const auto& [i, difference] : found.by_weight) {
      EXPECT_EQ(difference.count_nonzero().item<int64_t>(), 0) << i;
    }
    EXPECT_EQ(first.residual.count_nonzero().item<int64_t>(), 0);
    learner.take(0, 0);
    learner.reset_states(0);
    EXPECT_TRUE(first.live().isfinite().all().item<bool>());
    for (const checkpoint::Entry& entry : state.optimizer().state()) {
      EXPECT_EQ(entry.local.count_nonzero().item<int64_t>(), 0) << entry.name;
    }
  });
}

TEST_F(DecoupledStateTest, ACheckpointHasTheCommonWeightsUnderTheModelsNames) {
  with_learner({}, [](TrainingState&, DecoupledState& learner) {
    const auto& weight = learner.weights()[0];
    weight.common.fill_(7);
    std::vector<checkpoint::Entry> own{
        {weight.shard->name, weight.live(), weight.shard->layout, weight.shard->rank}};
    std::map<std::string, at::Tensor> saved;
    for (const checkpoint::Entry& entry : learner.to_save(own)) saved[entry.name] = entry.local;
    EXPECT_TRUE(saved.at(weight.shard->name).equal(weight.common));
    EXPECT_TRUE(saved.at("learners.1." + weight.shard->name).equal(weight.live()));
    EXPECT_TRUE(saved.at("learners.1.outer.base." + weight.shard->name).equal(weight.base));
    EXPECT_TRUE(saved.contains("learners.momentum." + weight.shard->name));
  });
}

}  // namespace
}  // namespace trireme::train
