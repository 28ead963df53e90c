#include "trireme/model/dit/diffusion_transformer.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/one_thread.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "tests/model/dit/small_dit.h"
#include "tests/model/image_layouts.h"
#include "trireme/base/error.h"
#include "trireme/model/dit/dit_plan.h"
#include "trireme/parallel/data/ddp.h"

namespace trireme::model {
namespace {

constexpr int64_t kImages = 3;

using Gradients = std::map<std::string, at::Tensor>;

at::Tensor target_of(const DitConfig& config, int64_t num_images, at::ScalarType dtype) {
  return noisy_images(config, num_images, dtype).images.mul(3).cos();
}

Gradients gradients_of(DiffusionTransformer& model) {
  Gradients result;
  for (const auto& item : model.module().named_parameters()) {
    EXPECT_TRUE(item.value().grad().defined()) << item.key();
    result[item.key()] = item.value().grad();
  }
  return result;
}

struct Outcome {
  at::Tensor noise;
  at::Tensor loss;
  Gradients gradients;
};

// Over the parameters of the whole model, so that every layout moves to the same values.
void move_parts(DiffusionTransformer& model, const DitConfig& config, const ModelPlan& plan,
                int tensor_rank) {
  const auto whole = make_diffusion_transformer(config, 3, at::kDouble);
  move_from_start(whole->module());
  const at::NoGradGuard no_grad;
  const auto parameters = whole->module().named_parameters();
  for (const auto& item : model.module().named_parameters()) {
    const mesh::Box box = plan.layout(item.key()).local_box(tensor_rank);
    at::Tensor part = parameters[item.key()];
    for (size_t d = 0; d < box.size.size(); ++d)
      part = part.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
    item.value().copy_(part);
  }
}

Outcome run(DiffusionTransformer& model, int64_t num_images) {
  const DitConfig& config = model.config();
  const auto [images, timesteps, classes] = noisy_images(config, num_images);
  const at::Tensor noise = model.forward_part(
      {.num_images = num_images, .images = images, .timesteps = timesteps, .classes = classes});
  const at::Tensor target = model.own_patches(target_of(config, num_images, at::kDouble));
  EXPECT_EQ(noise.sizes(), target.sizes());
  const at::Tensor loss = at::mse_loss(noise.to(at::kDouble), target, at::Reduction::Sum);
  loss.backward();
  return {noise.detach(), loss.detach(), gradients_of(model)};
}

Outcome of_one_rank(const DitConfig& config) {
  const auto model = make_diffusion_transformer(config, 3, at::kDouble);
  move_from_start(model->module());
  return run(*model, kImages);
}

// Softmax does not see the bias of the keys: its gradient is the rounding of its terms.
double bound_of(const std::string& name, const at::Tensor& oracle) {
  return 1e-10 * (name.ends_with("to_k.bias") ? 1 : oracle.abs().max().item<double>());
}

// Loss and every gradient of a layout are those of one rank.
void expect_one_ranks_result(const DitConfig& config, const ImageLayout& layout,
                             const Outcome& expected) {
  SCOPED_TRACE(layout.text());
  const ModelPlan plan = make_dit_plan(config, layout.tensor);
  run_layout(layout, [&](const ModelAxes& axes) {
    const auto model = make_diffusion_transformer(config, 3, at::kDouble, axes);
    move_parts(*model, config, plan, axes.tensor.rank());
    model->set_recompute({.block = layout.recompute});
    const Outcome result = run(*model, kImages);
    const bool counts = axes.context == nullptr || axes.context->rank() == 0;
    EXPECT_EQ(model->num_terms(kImages), counts ? kImages : 0);
    const auto over_context = [&](const at::Tensor& part) {
      at::Tensor sum = part.clone();
      if (axes.context != nullptr) axes.context->all_reduce(sum)->wait();
      return sum;
    };
    harness::assert_close(over_context(result.loss), expected.loss, 1e-10, 0, "loss");
    for (const auto& [name, gradient] : result.gradients) {
      at::Tensor oracle = expected.gradients.at(name);
      const double bound = bound_of(name, oracle);
      const mesh::Box box = plan.layout(name).local_box(axes.tensor.rank());
      for (size_t d = 0; d < box.size.size(); ++d)
        oracle = oracle.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
      harness::assert_close(over_context(gradient), oracle.contiguous(), 0, bound, name);
    }
  });
}

TEST(DiffusionTransformer, EveryAxisComputesWhatOneRankDoes) {
  using parallel::ContextForm;
  const DitConfig config = small_dit();
  const Outcome expected = of_one_rank(config);
  for (const ImageLayout& layout :
       {ImageLayout{.recompute = true}, ImageLayout{.tensor = 2},
        ImageLayout{.tensor = 3, .recompute = true}, ImageLayout{.tensor = 2, .sequence = true},
        ImageLayout{.tensor = 4, .sequence = true, .recompute = true}, ImageLayout{.context = 2},
        ImageLayout{.context = 3, .recompute = true},
        ImageLayout{.context = 4, .form = ContextForm::kAllToAll},
        ImageLayout{.tensor = 2, .context = 2, .sequence = true},
        ImageLayout{.tensor = 3, .context = 2, .recompute = true}}) {
    expect_one_ranks_result(config, layout, expected);
  }
  EXPECT_GT(expected.gradients.at("emb.class_embedder.embedding_table.weight")[5]
                .abs()
                .min()
                .item<double>(),
            0);  // the null class learns
}

TEST(DiffusionTransformer, RanksWithoutImagesRunForwardAndBackward) {
  const DitConfig config = small_dit();
  for (const ImageLayout& layout :
       {ImageLayout{}, ImageLayout{.recompute = true}, ImageLayout{.tensor = 3, .sequence = true},
        ImageLayout{.tensor = 2, .context = 2, .sequence = true}}) {
    SCOPED_TRACE(layout.text());
    run_layout(layout, [&](const ModelAxes& axes) {
      const auto model = make_diffusion_transformer(config, 3, at::kFloat, axes);
      model->set_recompute({.block = layout.recompute});
      const Outcome result = run(*model, 0);
      EXPECT_EQ(result.loss.item<double>(), 0);
      for (const auto& [name, gradient] : result.gradients)
        EXPECT_TRUE(gradient.eq(0).all().item<bool>()) << name;
    });
  }
}

TEST(DiffusionTransformer, WholeParametersGetTheSameGradientBitsOnAllTensorRanks) {
  const DitConfig config = small_dit();
  const ModelPlan plan = make_dit_plan(config, 3);
  for (const bool sequence : {false, true}) {
    run_layout({.tensor = 3, .sequence = sequence}, [&](const ModelAxes& axes) {
      const auto model = make_diffusion_transformer(config, 3, at::kFloat, axes);
      move_parts(*model, config, plan, axes.tensor.rank());
      for (const auto& [name, gradient] : run(*model, kImages).gradients) {
        if (plan.layout(name).placements()[0].kind != mesh::Placement::Kind::kReplicated) continue;
        at::Tensor of_root = gradient.clone();
        axes.tensor.group->broadcast(of_root, 0)->wait();
        harness::assert_same_bits(gradient, of_root, name);
      }
    });
  }
}

TEST(DiffusionTransformer, StagesComputeTheBitsOfTheWholeModel) {
  const harness::OneThread one_thread;
  DitConfig config = small_dit();
  config.layers = 3;
  const auto [images, timesteps, classes] = noisy_images(config, kImages);
  const Outcome expected = of_one_rank(config);
  const std::vector<ModelPart> parts = {
      {.num_layers = 1, .has_head = false},
      {.first_layer = 1, .num_layers = 1, .embeds = false, .has_head = false},
      {.first_layer = 2, .embeds = false}};
  std::vector<std::unique_ptr<DiffusionTransformer>> stages;
  std::vector<at::Tensor> inputs, outputs;
  for (const ModelPart& part : parts) {
    stages.push_back(make_diffusion_transformer(config, 3, at::kDouble, {}, part));
    move_parts(*stages.back(), config, make_dit_plan(config, 1), 0);
    inputs.push_back(outputs.empty() ? at::Tensor() : outputs.back().detach().requires_grad_());
    outputs.push_back(stages.back()->forward_part({.num_images = kImages,
                                                   .images = images,
                                                   .timesteps = timesteps,
                                                   .classes = classes,
                                                   .hidden = inputs.back()}));
  }
  harness::assert_same_bits(outputs.back().detach(), expected.noise, "noise");
  const at::Tensor target = stages[0]->own_patches(target_of(config, kImages, at::kDouble));
  at::mse_loss(outputs.back(), target, at::Reduction::Sum).backward();
  outputs[1].backward(inputs[2].grad());
  outputs[0].backward(inputs[1].grad());
  size_t count = 0;
  for (const auto& part : stages) {
    for (const auto& [name, gradient] : gradients_of(*part)) {
      harness::assert_same_bits(gradient, expected.gradients.at(name), name);
      ++count;
    }
  }
  EXPECT_EQ(count, expected.gradients.size());
}

TEST(DiffusionTransformer, RecomputationHasTheSameBits) {
  const harness::OneThread one_thread;
  const DitConfig config = small_dit();
  const auto result_of = [&](const RecomputePlan& plan) {
    const auto model = make_diffusion_transformer(config, 3, at::kFloat);
    move_from_start(model->module());
    model->set_recompute(plan);
    return run(*model, kImages);
  };
  const Outcome expected = result_of({});
  for (const RecomputePlan& plan :
       {RecomputePlan{.block = true}, RecomputePlan{.attention = true},
        RecomputePlan{.attention_core = true}, RecomputePlan{.feed_forward = true}}) {
    const Outcome result = result_of(plan);
    harness::assert_same_bits(result.noise, expected.noise, "noise");
    harness::assert_same_bits(result.gradients, expected.gradients);
  }
}

TEST(DiffusionTransformer, UnitsHaveEveryParameterOnceAndRunInTheirOrder) {
  const auto model = make_diffusion_transformer(small_dit(), 1, at::kFloat);
  std::map<const void*, int> uses;
  for (const at::Tensor& p : model->module().parameters()) uses[p.unsafeGetTensorImpl()] = 0;
  for (const parallel::Unit& unit : model->units()) {
    for (const at::Tensor& p : unit.parameters) ++uses.at(p.unsafeGetTensorImpl());
  }
  for (const auto& [parameter, count] : uses) EXPECT_EQ(count, 1);
  std::vector<size_t> runs;
  model->run_units_with(
      [&](size_t unit, const at::Tensor& x, const parallel::UnitForward& forward) {
        runs.push_back(unit);
        return forward(x);
      });
  run(*model, 1);
  EXPECT_EQ(runs, (std::vector<size_t>{0, 1, 2, 3}));
}

TEST(DiffusionTransformer, BeginsWithoutNoiseAndLearnsInEveryPrecision) {
  const harness::OneThread one_thread;
  const DitConfig config = small_dit();
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto model = make_diffusion_transformer(config, 3, dtype);
    EXPECT_TRUE(run(*model, kImages).noise.eq(0).all().item<bool>());
    for (const at::Tensor& p : model->module().parameters()) p.mutable_grad().reset();
    move_from_start(model->module());
    const Outcome result = run(*model, kImages);
    EXPECT_EQ(result.noise.scalar_type(), dtype);
    for (const auto& [name, gradient] : result.gradients)
      EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << name;
  }
}

TEST(DiffusionTransformer, EveryPixelTimestepAndClassChangesItsImageAlone) {
  const DitConfig config = small_dit();
  const auto model = make_diffusion_transformer(config, 3, at::kDouble);
  move_from_start(model->module());
  const at::NoGradGuard no_grad;
  const NoisyImages given = noisy_images(config, 2);
  const auto noise = [&](const at::Tensor& images, const at::Tensor& timesteps,
                         const at::Tensor& classes) {
    return model->noise_in(images, timesteps, classes);
  };
  const at::Tensor before = noise(given.images, given.timesteps, given.classes);
  at::Tensor pixels = given.images.clone(), timesteps = given.timesteps.clone(),
             classes = given.classes.clone();
  pixels[1][2][5][5] += 1;
  timesteps[1] += 1;
  classes[1] = 0;
  for (const at::Tensor& after : {noise(pixels, given.timesteps, given.classes),
                                  noise(given.images, timesteps, given.classes),
                                  noise(given.images, given.timesteps, classes)}) {
    harness::assert_same_bits(after[0], before[0], "the other image");
    EXPECT_GT((after[1] - before[1]).abs().min().item<double>(), 1e-9);
  }
}

TEST(DiffusionTransformer, RefusesInputItCannotRead) {
  const DitConfig config = small_dit();
  const auto model = make_diffusion_transformer(config, 1, at::kFloat);
  const auto [images, timesteps, classes] = noisy_images(config, 2);
  EXPECT_THROW(model->noise_in(images.narrow(2, 0, 4), timesteps, classes), ConfigError);
  EXPECT_THROW(model->noise_in(images.to(at::kByte), timesteps, classes), ConfigError);
  EXPECT_THROW(model->noise_in(images, timesteps.to(at::kDouble), classes), ConfigError);
  EXPECT_THROW(model->noise_in(images, timesteps, classes.narrow(0, 0, 1)), ConfigError);
}

TEST(DiffusionTransformer, RefusesSizesThatMakeNoModel) {
  const auto refuses = [](DitConfig config) {
    EXPECT_THROW(make_diffusion_transformer(config, 1, at::kFloat), ConfigError);
  };
  DitConfig config = small_dit();
  config.patch_size = 4;
  refuses(config);
  config = small_dit();
  config.width = 22;
  refuses(config);
  config = small_dit();
  config.heads = 5;
  refuses(config);
  config = small_dit();
  config.classes = 0;
  refuses(config);
}

}  // namespace
}  // namespace trireme::model
