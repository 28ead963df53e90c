#include "trireme/model/dit/dit_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/live_bytes.h"
#include "tests/harness/one_thread.h"
#include "tests/model/dit/small_dit.h"
#include "trireme/base/error.h"

namespace trireme::model {
namespace {

TEST(DitCosts, ParametersAreThoseOfThePlan) {
  const DitConfig config = small_dit();
  int64_t embeddings = 0, blocks = 0, head = 0, split = 0;
  const ModelPlan plan = make_dit_plan(config, 1);
  for (const ParameterPlan& parameter : plan.parameters()) {
    const int64_t elements = c10::multiply_integers(parameter.layout.shape());
    const std::string& name = parameter.name;
    const bool in_block = name.starts_with("transformer_blocks.");
    (in_block ? blocks : name.starts_with("proj_out_") ? head : embeddings) += elements;
    if (in_block && name.find("norm1") == name.npos && name.ends_with(".weight")) split += elements;
  }
  const DitCosts costs = dit_parameters(config);
  EXPECT_EQ(costs.embeddings, static_cast<double>(embeddings));
  EXPECT_EQ(2 * costs.block, static_cast<double>(blocks));
  EXPECT_EQ(costs.head, static_cast<double>(head));
  EXPECT_EQ(2 * split_parameters(config), static_cast<double>(split));
  EXPECT_EQ(num_parameters(config), embeddings + blocks + head);
}

// Peebles and Xie 2022, tables 1 and 4: 33 million parameters, and 6.06 billion multiplications in
// a forward of a latent of 4 x 32 x 32, which learns variances too: a head of twice the rows.
TEST(DitCosts, AreThePublishedOnesOfDitS2) {
  const DitConfig config{.image_size = 32, .channels = 4, .classes = 1000};
  const double variances = 16.0 * 384;
  EXPECT_NEAR(static_cast<double>(num_parameters(config)) + variances, 33e6, 0.5e6);
  const DitCosts flops = dit_flops(config);
  // Half of them are multiplications. Forward is a third of all.
  const double forward = (12 * flops.block + flops.head) / 3 / 2 + 256 * variances;
  EXPECT_NEAR(forward, 6.06e9, 0.05e9);
  EXPECT_EQ(flops_per_image(config), flops.embeddings + 12 * flops.block + flops.head);
}

// What the estimate leaves out: of each block and token two norms' mean and scale and each head's
// log-sum-exp; the last norm's; of what is computed again the state of a random generator, 5056
// bytes, with its tensor; and of each image the scales plus 1. Not the numbers of rows.
double uncounted_bytes(const DitConfig& config, const DitForward& forward, bool recomputes) {
  const double tokens = static_cast<double>(forward.num_images * config.num_tokens());
  const auto layers = static_cast<double>(config.layers);
  const double numbers = layers * (4 + static_cast<double>(config.heads)) + 2;
  const double scales = static_cast<double>(forward.num_images * config.width) * (2 * layers + 1);
  const double item = std::max<double>(4, c10::elementSize(forward.dtype));
  return tokens * (item * numbers + 24) + scales * item + (recomputes ? layers * 5200 : 0);
}

TEST(DitCosts, KeptBytesAreWhatAForwardKeeps) {
  const harness::OneThread one_thread;
  const DitConfig config{.image_size = 32,
                         .channels = 3,
                         .patch_size = 4,
                         .layers = 3,
                         .width = 64,
                         .heads = 2,
                         .classes = 10};
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const char* modules : {"none", "attention_core", "attention", "feed_forward", "block"}) {
      DitForward forward{.num_images = 2, .dtype = dtype};
      const std::string name = modules;
      if (name == "block") forward.recompute.block = true;
      if (name != "block" && name != "none")
        forward.recompute = recompute_plan(Recompute::kSelective, modules);
      const auto model = make_diffusion_transformer(config, 1, dtype);
      model->set_recompute(forward.recompute);
      const auto [images, timesteps, classes] = noisy_images(config, 2, dtype);
      const auto live = std::make_shared<harness::LiveBytes>();
      double found = 0;
      {
        const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
        const at::Tensor noise = model->forward_part(
            {.num_images = 2, .images = images, .timesteps = timesteps, .classes = classes});
        found = static_cast<double>(live->bytes() - static_cast<int64_t>(noise.nbytes()));
      }
      const DitCosts kept = dit_kept_bytes(config, forward);
      const double expected = kept.embeddings + 3 * kept.block + kept.head;
      EXPECT_GE(found, expected) << name << " " << dtype;
      EXPECT_LE(found, expected + uncounted_bytes(config, forward, name != "none"))
          << name << " " << dtype;
    }
  }
}

TEST(DitCosts, AxesDivideWhatTheyDivide) {
  const DitConfig config = small_dit();
  const double rows = 6 * 9 * 4, D = 24, F = 96, images = 6 * 4;  // bytes of one number
  const double whole = 8 * D * rows + (4 * D + 2 * F) * rows;
  const double conditioning = D * (2 + 6) * images;
  EXPECT_EQ(dit_kept_bytes(config, {.num_images = 6}).block, whole + conditioning);
  EXPECT_EQ(dit_kept_bytes(config, {.num_images = 6, .tensor = 2}).block,
            8 * D * rows + (4 * D + 2 * F) * rows / 2 + conditioning);
  EXPECT_EQ(dit_kept_bytes(config, {.num_images = 6, .tensor = 2, .sequence = true}).block,
            whole / 2 + D * (2 * images + 6 * rows / 2));
  EXPECT_EQ(dit_kept_bytes(config, {.num_images = 6, .context = 3}).block,
            whole / 3 + conditioning);
}

}  // namespace
}  // namespace trireme::model
