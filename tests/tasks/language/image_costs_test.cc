// The costs of the vision tower and projector of a language model that reads images.
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/live_bytes.h"
#include "tests/harness/messages.h"
#include "tests/train/language_config.h"
#include "trireme/base/error.h"
#include "trireme/model/family/family.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/model.h"
#include "trireme/tasks/language/language.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {
namespace {

using train::model_of;
using train::Override;

constexpr int64_t kT = 64, kImages = 3, kBatch = 2, kPatches = 9;

train::RunConfig image_config(const std::vector<Override>& overrides, int64_t layers = 4) {
  train::RunConfig config = train::parse_config(concat(R"(
[model]
layers = 2
width = 64
heads = 2
kv_heads = 1
ffn_width = 160
sequence_length = 64
vocab_size = 96
[vision]
layers = )",
                                                       layers, layers == 0 ? "" : R"(
width = 48
heads = 3
ffn_width = 80
image_size = 12
patch_size = 4
image_token = 5
)",
                                                       R"(
[data]
packing = "whole"
[train]
global_batch = 16
micro_batch = 2
)"),
                                                "test", overrides);
  train::resolve(config, 1);
  model_of(config).vision.images_per_sequence = 1.0 * kImages / kBatch;
  return config;
}

double activations_of(const train::RunConfig& config) {
  double sum = 0;
  for (const parallel::LayerCost& cost : config.task->model().layer_costs(config))
    sum += cost.activations;
  return sum;
}

// images: of the first sequence two, of the second one
double kept_with_images(const train::RunConfig& config) {
  const auto model = model::make_model(model_of(config), 1, config.dtype());
  model->set_recompute(config.recompute_plan());
  for (const auto& item : model->module().named_parameters()) {
    if (!config.train.freeze.empty() && item.key().find(model::kVisionTower) != std::string::npos)
      item.value().set_requires_grad(false);
  }
  const at::Tensor tokens = at::zeros({kBatch, kT}, at::kLong);
  tokens[0].narrow(0, 0, 2 * kPatches).fill_(5);
  tokens[1].narrow(0, 0, kPatches).fill_(5);
  const at::Tensor images = at::ones({kBatch, 2, 3, 12, 12});
  const auto live = std::make_shared<harness::LiveBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
  const bool has_images = model_of(config).vision.is_on();
  at::Tensor hidden =
      model->forward_part({.tokens_BT = tokens, .images = has_images ? images : at::Tensor()})
          .hidden;
  const model::Loss loss = model->head_loss(hidden, tokens);
  hidden.reset();
  return static_cast<double>(live->bytes());
}

TEST(ImageCosts, ActivationsAreWhatAForwardKeeps) {
  for (const std::string precision : {"fp32", "bf16"}) {
    for (const std::string recompute : {"none", "full"}) {
      for (const bool trains_tower : {false, true}) {
        std::vector<Override> keys = {{"train.precision", precision},
                                      {"train.recompute", recompute}};
        const train::RunConfig of_text = image_config(keys, 0);
        const double text = activations_of(of_text), kept_of_text = kept_with_images(of_text);
        if (!trains_tower) keys.emplace_back("train.freeze", "*vision_tower*");
        const train::RunConfig config = image_config(keys);
        const double expected = activations_of(config);
        EXPECT_GT(expected, text);
        const double found = kept_with_images(config);
        // Beside those of the text: places of images and their pixels; scales of norms, and the
        // log-sum-exps of three heads; the state of a random generator for what is computed again.
        const double images = 8 * (kBatch * kT + 2 * kImages * kPatches) + 4 * kImages * 3 * 144;
        const double scales = trains_tower ? 4 * kImages * 10 * (7 * 2 + 3 * 3) : 0;
        const double again = recompute == "full" && trains_tower ? 3 * 5200 : 0;
        const double small = images + scales + again;
        const double extra = found - expected - (kept_of_text - text);
        EXPECT_GE(extra, 0) << precision << recompute << trains_tower;
        EXPECT_LE(extra, small) << precision << recompute << trains_tower;
      }
    }
  }
}

// Counted by the plan's matrices: 2 operations an element and row in forward and 4 in backward.
TEST(ImageCosts, TimesAreTheModelsOperations) {
  const train::RunConfig config = image_config({}), text = image_config({}, 0);
  double flops = 0;
  const model::ModelPlan plan = model::make_plan(model_of(config));
  for (const model::ParameterPlan& parameter : plan.parameters()) {
    const std::string& name = parameter.name;
    const std::vector<int64_t>& shape = parameter.layout.shape();
    const double elements = static_cast<double>(
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies()));
    if (name.find("encoder.layers.3.") != name.npos || shape.size() < 2) continue;  // does not run
    if (name.find("patch_embedding") != name.npos) flops += 4 * kPatches * elements;
    if (name.find(model::kProjector) != name.npos) flops += 6 * kPatches * elements;
    if (name.find("encoder.layers.") != name.npos) flops += 6 * (kPatches + 1) * elements;
  }
  flops += 3 * 12.0 * (kPatches + 1) * (kPatches + 1) * 48;  // scores of three blocks
  const auto per_sequence = [](const train::RunConfig& run) {
    return run.task->model().traits().flops_per_sample;
  };
  EXPECT_DOUBLE_EQ(per_sequence(config), per_sequence(text) + 1.5 * flops);
  const auto times = [](const train::RunConfig& run) {
    double sum = 0;
    for (const auto& cost : run.task->model().layer_costs(run)) sum += cost.time;
    return sum;
  };
  EXPECT_NEAR(times(config), times(text) + 1.5 * flops / kT, 1e-9 * times(config));
}

}  // namespace
}  // namespace trireme::tasks
