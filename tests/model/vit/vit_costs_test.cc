#include "trireme/model/vit/vit_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/live_bytes.h"
#include "tests/model/vit/small_vit.h"
#include "trireme/base/error.h"
#include "trireme/model/vit/image_transformer.h"

namespace trireme::model {
namespace {

VitConfig with_classes(std::string_view preset) {
  VitConfig config = vit_preset(preset);
  config.classes = 1000;
  return config;
}

TEST(VitCosts, ParametersAreThoseOfThePlan) {
  const VitConfig config = small_vit();
  int64_t embeddings = 0, blocks = 0, head = 0;
  const ModelPlan plan = make_vit_plan(config, 1);
  for (const ParameterPlan& parameter : plan.parameters()) {
    const int64_t elements = c10::multiply_integers(parameter.layout.shape());
    const bool embeds = parameter.name.starts_with("vit.embeddings.");
    const bool in_block = parameter.name.starts_with("vit.encoder.");
    (embeds ? embeddings : in_block ? blocks : head) += elements;
  }
  const VitCosts costs = vit_parameters(config);
  EXPECT_EQ(costs.embeddings, static_cast<double>(embeddings));
  EXPECT_EQ(2 * costs.block, static_cast<double>(blocks));
  EXPECT_EQ(costs.head, static_cast<double>(head));
  EXPECT_EQ(num_parameters(config), embeddings + blocks + head);
}

// With 1000 classes: Touvron et al. 2020, table 1, rounds them to 22M and 86M.
TEST(VitCosts, PresetsHaveThePublishedNumberOfParameters) {
  EXPECT_EQ(num_parameters(with_classes("vit_s16")), 22'050'664);
  EXPECT_EQ(num_parameters(with_classes("vit_b16")), 86'567'656);
}

// torchvision states 17.56 billion multiplications and additions for the forward of vit_b_16.
TEST(VitCosts, OperationsAreThePublishedOnes) {
  const VitCosts flops = vit_flops(with_classes("vit_b16"));
  // Half of them are multiplications. Forward is a third of all, or half in the embeddings.
  const double forward = flops.embeddings / 2 / 2 + (12 * flops.block + flops.head) / 3 / 2;
  EXPECT_NEAR(forward, 17.56e9, 0.005e9);
  EXPECT_EQ(flops_per_image(with_classes("vit_b16")),
            flops.embeddings + 12 * flops.block + flops.head);
}

// What the estimate leaves out: of each block and token two norms' mean and scale and each head's
// log-sum-exp; the last norm's; and of what is computed again the state of a random generator,
// 5056 bytes, with its tensor. Not the positions and numbers of rows, 8 bytes for each token.
double uncounted_bytes(const VitConfig& config, const VitForward& forward, bool recomputes) {
  const double tokens = static_cast<double>(forward.num_images * config.num_tokens());
  const auto layers = static_cast<double>(config.layers);
  const double numbers = layers * (4 + static_cast<double>(config.heads)) + 2;
  return tokens * (std::max<double>(4, c10::elementSize(forward.dtype)) * numbers + 16) +
         (recomputes ? layers * 5200 : 0);
}

TEST(VitCosts, KeptBytesAreWhatAForwardKeeps) {
  const VitConfig config{.image_size = 32,
                         .patch_size = 4,
                         .layers = 3,
                         .width = 64,
                         .heads = 2,
                         .ffn_width = 160,
                         .classes = 10};
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const char* modules : {"none", "attention_core", "attention", "feed_forward", "block"}) {
      VitForward forward{.num_images = 2, .dtype = dtype};
      const std::string name = modules;
      if (name == "block") forward.recompute.block = true;
      if (name != "block" && name != "none")
        forward.recompute = recompute_plan(Recompute::kSelective, modules);
      const auto model = make_image_transformer(config, 1, dtype);
      model->set_recompute(forward.recompute);
      const at::Tensor images = some_images(config, 2, dtype);
      const auto live = std::make_shared<harness::LiveBytes>();
      double found = 0;
      {
        const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
        const at::Tensor logits = model->logits_of(images);
        found = static_cast<double>(live->bytes() - static_cast<int64_t>(logits.nbytes()));
      }
      const VitCosts kept = vit_kept_bytes(config, forward);
      const double expected = kept.embeddings + 3 * kept.block + kept.head;
      EXPECT_GE(found, expected) << name;
      EXPECT_LE(found, expected + uncounted_bytes(config, forward, name != "none")) << name;
    }
  }
}

TEST(VitCosts, AxesDivideWhatTheyDivide) {
  const VitConfig config = small_vit();
  const double rows = 6 * 10 * 4, D = 24, F = 25, K = 12;  // bytes of one number per token
  const VitCosts one = vit_kept_bytes(config, {.num_images = 6});
  EXPECT_EQ(one.block, (8 * D + 2 * F) * rows);
  EXPECT_EQ(one.embeddings, K * rows);
  const VitCosts tensor = vit_kept_bytes(config, {.num_images = 6, .tensor = 2});
  EXPECT_EQ(tensor.block, (4 * D + (4 * D + 2 * F) / 2) * rows);
  const VitCosts sequence =
      vit_kept_bytes(config, {.num_images = 6, .tensor = 2, .sequence = true});
  EXPECT_EQ(sequence.block, (8 * D + 2 * F) * rows / 2);
  EXPECT_EQ(sequence.embeddings, K * rows / 2);
  EXPECT_EQ(vit_kept_bytes(config, {.num_images = 6, .context = 3}).block,
            (8 * D + 2 * F) * rows / 3);
}

}  // namespace
}  // namespace trireme::model
