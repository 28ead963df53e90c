#include "trireme/tasks/recommend/recommend_network.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::tasks::inline internal {
namespace {

TEST(WideDeep, AddsALinearModelToADeepOne) {
  for (const int num_classes : {2, 3}) {
    RecommendProblem problem;
    problem.config.model = {.family = RecommendFamily::kWideDeep, .width = 4, .top = "6"};
    problem.schema = {.dense = {"a", "b"}, .tables = {{.name = "t"}, {.name = "u"}}};
    problem.schema.label =
        num_classes > 2 ? dataset::LabelKind::kClass : dataset::LabelKind::kBinary;
    if (num_classes > 2) problem.schema.classes = {"x", "y", "z"};
    const int64_t O = problem.num_outputs();
    WideDeep model(problem);
    model.to(at::kDouble);
    draw_values(model, 1);
    const auto p = model.named_parameters();
    const at::Tensor dense = at::randn({5, 2}, at::kDouble);
    const at::Tensor embedded = at::randn({5, 8 + 2 * O}, at::kDouble);
    const auto linear = [&](const std::string& name, const at::Tensor& x) {
      return at::mm(x, p[name + ".weight"].t()) + p[name + ".bias"];
    };
    const at::Tensor x = at::cat({dense, embedded.narrow(1, 0, 8)}, 1);
    const at::Tensor expected = linear("deep.layers.1", linear("deep.layers.0", x).clamp_min(0)) +
                                linear("wide.layers.0", dense) + embedded.narrow(1, 8, O) +
                                embedded.narrow(1, 8 + O, O);
    const at::Tensor found = model.forward({dense, embedded});
    harness::assert_close(found.detach(), expected.detach(), 1e-13, 1e-14, "logits");
  }
}

}  // namespace
}  // namespace trireme::tasks::inline internal
