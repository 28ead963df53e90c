#include "trireme/train/task/predictor.h"

#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/train/annotated/annotated_run.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/mesh/device_mesh.h"
#include "trireme/train/parallel/asked_layout.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/state/frozen_model.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::train {
namespace {

class AnnotatedPredictorTest : public AnnotatedRun {
 protected:
  AnnotatedPredictorTest() {
    run(config("run", {{"parallel.tensor", "2"}, {"parallel.zero", "1"}}), 4);
    std::vector<at::Tensor> x;
    for (int64_t i = 0; i < 7; ++i) x.push_back(Points().get(i, std::nullopt)[0].second);
    rows_.tensors.emplace_back("x", at::stack(x));
    rows_.step_size = rows_.size();
  }

  // What torch alone makes of the rows with the trained weights.
  at::Tensor expected() const {
    const c10::NoGradGuard no_gradient;
    PointsNet net(5, 0, "");
    net.to(at::kDouble);
    net.eval();
    const auto trained = checkpoint::load_global(find_checkpoint(folder_ / "run"));
    for (const auto& item : net.named_parameters()) {
      const auto found = trained.find(item.key());
      if (found != trained.end()) item.value().copy_(found->second);
    }
    return net.forward(rows_.tensors.front().second);
  }

  // What ranks that share the model say.
  std::vector<at::Tensor> ask(const std::vector<Override>& layout, int num_ranks) {
    const SavedModel saved(folder_ / "run", Weights::kLast);
    RunConfig trained = config("run");
    auto& task = dynamic_cast<PredictingTask&>(*trained.task);
    RunConfig asked =
        asked_config(trained, config("asked"),
                     task.make_answering({.saved = saved, .config = trained, .has_model = false}),
                     layout, num_ranks);
    asked.init.folder = saved.folder().string();
    std::vector<at::Tensor> said(static_cast<size_t>(num_ranks));
    harness::run_ranks(num_ranks, [&](comm::Communicator& world) {
      const c10::NoGradGuard no_gradient;
      const RunConfig own = asked;
      const mesh::DeviceMesh mesh(world, mesh_axes(own.parallel));
      FrozenModel model(own, mesh);
      model.load("RUN");
      const auto outputs = model.model().outputs({rows_});
      if (mesh.coordinate("pipeline") + 1 == mesh.size("pipeline"))
        said[static_cast<size_t>(world.rank())] = outputs.at("scores").front();
    });
    return said;
  }

  dataset::Batch rows_;
};

TEST_F(AnnotatedPredictorTest, AnswersAsTheTrainedModuleOnOneRank) {
  const SavedModel saved(folder_ / "run", Weights::kLast);
  RunConfig own = config("run");
  const PredictRequest request{.saved = saved, .config = own};
  const c10::NoGradGuard no_gradient;
  const auto predictor = dynamic_cast<PredictingTask&>(*own.task).make_predictor(request);
  const at::Tensor outputs = predictor->outputs(rows_);
  EXPECT_TRUE(at::equal(outputs, expected()));
  const std::vector<Answer> answers = predictor->answers(outputs);
  ASSERT_EQ(answers.size(), 7U);
  EXPECT_EQ(answers.front().classes.size(), static_cast<size_t>(kClasses));
}

TEST_F(AnnotatedPredictorTest, RanksThatShareTheModuleAnswerAlike) {
  const at::Tensor expected = this->expected();
  const std::vector<std::pair<int, std::vector<Override>>> layouts = {
      {2, {}},
      {2, {{"parallel.zero", "3"}}},
      {2, {{"parallel.tensor", "2"}}},
      {4, {{"parallel.tensor", "2"}}}};
  for (const auto& [num_ranks, layout] : layouts) {
    for (const at::Tensor& said : ask(layout, num_ranks)) {
      ASSERT_TRUE(said.defined());
      const bool is_split = !layout.empty() && layout.front().first == "parallel.tensor";
      EXPECT_TRUE(at::allclose(said, expected, is_split ? 1e-12 : 0, is_split ? 1e-13 : 0));
    }
  }
}

}  // namespace
}  // namespace trireme::train
