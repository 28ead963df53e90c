#include "trireme/train/learner/learner_state.h"

#include <cmath>
#include <limits>
#include <mutex>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/train/text_run.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/run/inputs.h"

namespace trireme::train {
namespace {

class LearnerStateTest : public TextRun {
 protected:
  // Each rank of `n` is a learner with a state of its own.
  template <typename Function>
  void with_learners(int n, const std::vector<Override>& overrides, const Function& function) {
    std::vector<Override> all = overrides;
    all.push_back({"parallel.learners", std::to_string(n)});
    RunConfig config = TextRun::config("run", all);
    config.train.global_batch = 2 * n;
    open_inputs(config, n);
    harness::run_ranks(n, [&](comm::Communicator& world) {
      const auto alone = world.split(world.rank(), 0, "alone");
      const mesh::DeviceMesh mesh(*alone, mesh_axes(config.parallel));
      Callbacks callbacks(config.callbacks, config, {});
      TrainingState state(config, mesh, world, callbacks, nullptr, {});
      state.build();
      LearnerState learner(config, state, world);
      function(world, state, learner);
    });
  }
  static void change(TrainingState& state, double by) {
    const c10::NoGradGuard no_grad;
    for (const parallel::Shard& shard : state.model().shards()) shard.weights.add_(by);
  }
};

TEST_F(LearnerStateTest, LearnersThatAreEqualStayEqualAndUnchanged) {
  for (const int n : {2, 3, 4, 5, 6, 7, 8}) {
    with_learners(n, {}, [&](comm::Communicator&, TrainingState& state, LearnerState& learner) {
      std::vector<at::Tensor> before;
      for (const parallel::Shard& shard : state.model().shards()) {
        before.push_back(shard.weights.detach().clone());
      }
      learner.start(0, {});
      EXPECT_EQ(learner.finish(0).spread, 0);
      for (size_t i = 0; i < before.size(); ++i) {
        EXPECT_TRUE(state.model().shards()[i].weights.equal(before[i])) << n;
      }
    });
  }
}

TEST_F(LearnerStateTest, TheSpreadIsTheDistanceFromTheMean) {
  with_learners(2, {{"outer.method", "average"}},
                [](comm::Communicator& world, TrainingState& state, LearnerState& learner) {
                  change(state, world.rank() == 0 ? 1.0 / 64 : -1.0 / 64);
                  int64_t elements = 0;
                  for (const auto& shard : state.model().shards())
                    elements += shard.weights.numel();
                  learner.start(0, {});
                  const double expected = std::sqrt(static_cast<double>(elements)) / 64;
                  EXPECT_NEAR(learner.finish(0).spread, expected, 1e-6 * expected);
                });
}

TEST_F(LearnerStateTest, ALearnerThatIsNotFiniteIsLeftOutAndNamed) {
  std::mutex mutex;
  std::vector<at::Tensor> weights(3);
  with_learners(3, {{"outer.method", "average"}},
                [&](comm::Communicator& world, TrainingState& state, LearnerState& learner) {
                  const at::Tensor first = state.model().shards()[0].weights;
                  const at::Tensor before = first.detach().clone();
                  change(state, world.rank() == 0 ? 0.5 : 0.25);
                  if (world.rank() == 1) {
                    change(state, std::numeric_limits<double>::quiet_NaN());
                  }
                  learner.start(0, {static_cast<double>(world.rank())});
                  const LearnerState::Arrival arrival = learner.finish(0);
                  EXPECT_EQ(arrival.excluded, std::vector<int>{1});
                  EXPECT_EQ(arrival.notes[2], std::vector<double>{2});
                  // The mean of the other two.
                  EXPECT_TRUE(first.allclose(before + 0.375, 1e-6, 1e-6));
                  const std::lock_guard lock(mutex);
                  weights[static_cast<size_t>(world.rank())] = first.detach().clone();
                });
  EXPECT_TRUE(weights[0].equal(weights[1]));
  EXPECT_TRUE(weights[0].equal(weights[2]));
}

}  // namespace
}  // namespace trireme::train
