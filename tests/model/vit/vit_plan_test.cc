#include "trireme/model/vit/vit_plan.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "tests/model/vit/small_vit.h"
#include "trireme/base/error.h"
#include "trireme/model/vit/image_transformer.h"

namespace trireme::model {
namespace {

TEST(VitPlan, ListsTheNetworksParametersInItsOrder) {
  const VitConfig config = small_vit();
  const ModelPlan plan = make_vit_plan(config, 1);
  const auto model = make_image_transformer(config, 1, at::kFloat);
  const auto parameters = model->module().named_parameters();
  ASSERT_EQ(plan.parameters().size(), parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(plan.parameters()[i].name, parameters[i].key());
    EXPECT_EQ(at::IntArrayRef(plan.parameters()[i].layout.shape()), parameters[i]->sizes());
  }
}

TEST(VitPlan, NormsStartAtOneBiasesAtZeroAndTheRestAtRandom) {
  const auto model = make_image_transformer(small_vit(), 1, at::kDouble);
  for (const auto& item : model->module().named_parameters()) {
    const std::string& name = item.key();
    const at::Tensor& value = item.value();
    if (name.ends_with(".bias")) {
      EXPECT_TRUE(value.eq(0).all().item<bool>()) << name;
    } else if (name.find("norm") != std::string::npos) {
      EXPECT_TRUE(value.eq(1).all().item<bool>()) << name;
    } else {
      // Four standard errors of the smallest, 24 numbers.
      EXPECT_NEAR(value.std().item<double>(), 0.02, 4 * 0.02 / std::sqrt(48)) << name;
    }
  }
}

TEST(VitPlan, EveryRankDrawsItsPartOfTheWholeModel) {
  const VitConfig config = small_vit();
  const auto whole = make_image_transformer(config, 3, at::kFloat);
  const auto expected = whole->module().named_parameters();
  for (const int ranks : {1, 2, 3, 4}) {
    const ModelPlan plan = make_vit_plan(config, ranks);
    harness::run_ranks(ranks, [&](comm::Communicator& group) {
      const auto model =
          make_image_transformer(config, 3, at::kFloat, {.tensor = {.group = &group}});
      for (const auto& item : model->module().named_parameters()) {
        const mesh::Box box = plan.layout(item.key()).local_box(group.rank());
        at::Tensor part = expected[item.key()].detach();
        for (size_t d = 0; d < box.size.size(); ++d)
          part = part.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
        harness::assert_same_bits(item.value().detach(), part.contiguous(), item.key());
      }
    });
  }
}

TEST(VitPlan, RefusesWhatCannotBeSplitOrHasNoClasses) {
  const auto message = [](const VitConfig& config, int ranks) -> std::string {
    try {
      make_vit_plan(config, ranks);
      return "accepted";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  VitConfig config = small_vit();
  EXPECT_NE(message(config, 5).find("parallel.tensor is 5 and model.heads is 4"),
            std::string::npos);
  config.classes = 0;
  EXPECT_NE(message(config, 1).find("model.classes = 0"), std::string::npos);
}

}  // namespace
}  // namespace trireme::model
