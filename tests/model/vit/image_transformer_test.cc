#include "trireme/model/vit/image_transformer.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "tests/model/image_layouts.h"
#include "tests/model/vit/small_vit.h"
#include "trireme/base/error.h"
#include "trireme/model/vit/vit_plan.h"
#include "trireme/parallel/data/ddp.h"

namespace trireme::model {
namespace {

constexpr int64_t kImages = 3;

// What a task makes of the logits: the sum over this rank's images.
at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& labels) {
  return at::cross_entropy_loss(logits, labels.narrow(0, 0, logits.size(0)), /*weight=*/{},
                                at::Reduction::Sum);
}

using Gradients = std::map<std::string, at::Tensor>;

Gradients gradients_of(ImageTransformer& model) {
  Gradients result;
  for (const auto& item : model.module().named_parameters()) {
    EXPECT_TRUE(item.value().grad().defined()) << item.key();
    result[item.key()] = item.value().grad();
  }
  return result;
}

struct Result {
  at::Tensor logits;
  at::Tensor loss;
  Gradients gradients;
};

Result run(ImageTransformer& model, int64_t num_images,
           const std::optional<TrainingPlace>& training = {}) {
  const VitConfig& config = model.config();
  const at::Tensor logits = model.logits_of(some_images(config, num_images), training);
  const at::Tensor loss = loss_of(logits, some_labels(config, num_images));
  loss.backward();
  return {logits.detach(), loss.detach(), gradients_of(model)};
}

at::Tensor part_of(const at::Tensor& whole, const mesh::Box& box) {
  at::Tensor part = whole;
  for (size_t d = 0; d < box.size.size(); ++d)
    part = part.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
  return part.contiguous();
}

// Softmax does not see the bias of the keys: its gradient is the rounding of its terms.
double bound_of(const std::string& name, const at::Tensor& oracle) {
  return 1e-10 * (name.ends_with("key.bias") ? 1 : oracle.abs().max().item<double>());
}

// Logits, loss and every gradient of a layout are those of one rank.
void expect_one_ranks_result(const VitConfig& config, const ImageLayout& layout,
                             const Result& expected,
                             const std::optional<TrainingPlace>& training = {}) {
  SCOPED_TRACE(layout.text());
  const ModelPlan plan = make_vit_plan(config, layout.tensor);
  run_layout(layout, [&](const ModelAxes& axes) {
    const auto model = make_image_transformer(config, 3, at::kDouble, axes);
    model->set_recompute({.block = layout.recompute});
    const Result result = run(*model, kImages, training);
    const int64_t terms = model->num_terms(kImages);
    EXPECT_EQ(terms, axes.context == nullptr || axes.context->rank() == 0 ? kImages : 0);
    EXPECT_EQ(result.logits.size(0), terms);
    if (terms > 0) {
      harness::assert_close(result.logits, expected.logits, 1e-10, 0, "logits");
      harness::assert_close(result.loss, expected.loss, 1e-10, 0, "loss");
    } else {
      EXPECT_EQ(result.loss.item<double>(), 0);
    }
    for (const auto& [name, gradient] : result.gradients) {
      at::Tensor sum = gradient.clone();
      if (axes.context != nullptr) axes.context->all_reduce(sum)->wait();
      const at::Tensor& oracle = expected.gradients.at(name);
      const mesh::Box box = plan.layout(name).local_box(axes.tensor.rank());
      harness::assert_close(sum, part_of(oracle, box), 0, bound_of(name, oracle), name);
    }
  });
}

Result of_one_rank(const VitConfig& config, const std::optional<TrainingPlace>& training = {}) {
  return run(*make_image_transformer(config, 3, at::kDouble), kImages, training);
}

TEST(ImageTransformer, TensorRanksComputeWhatOneRankDoes) {
  const VitConfig config = small_vit();
  const Result expected = of_one_rank(config);
  for (const int tensor : {1, 2, 3, 4}) {
    for (const bool sequence : {false, true}) {
      for (const bool recompute : {false, true})
        expect_one_ranks_result(
            config, {.tensor = tensor, .sequence = sequence, .recompute = recompute}, expected);
    }
  }
}

TEST(ImageTransformer, ContextRanksComputeWhatOneRankDoes) {
  using parallel::ContextForm;
  VitConfig two_tokens = small_vit();
  two_tokens.patch_size = 6;
  for (const VitConfig& config : {small_vit(), two_tokens}) {
    const Result expected = of_one_rank(config);
    for (const int context : {2, 3, 4}) {
      for (const ContextForm form : {ContextForm::kRing, ContextForm::kAllToAll}) {
        for (const bool recompute : {false, true})
          expect_one_ranks_result(
              config, {.context = context, .form = form, .recompute = recompute}, expected);
      }
    }
  }
}

TEST(ImageTransformer, TensorAndContextRanksComputeWhatOneRankDoes) {
  const VitConfig config = small_vit();
  const Result expected = of_one_rank(config);
  for (const auto& [tensor, context] : {std::pair{2, 2}, {2, 3}, {3, 2}}) {
    for (const bool sequence : {false, true})
      expect_one_ranks_result(config, {.tensor = tensor, .context = context, .sequence = sequence},
                              expected);
  }
}

TEST(ImageTransformer, EveryLayoutDropsTheSameElements) {
  VitConfig config = small_vit();
  config.dropout = 0.3;
  const TrainingPlace place{.step = 4, .first_sample = 5};
  const Result expected = of_one_rank(config, place);
  EXPECT_FALSE(expected.logits.allclose(of_one_rank(config).logits));
  for (const ImageLayout& layout :
       {ImageLayout{.tensor = 2}, ImageLayout{.tensor = 3, .sequence = true},
        ImageLayout{.context = 3},
        ImageLayout{.tensor = 2, .context = 2, .sequence = true, .recompute = true}}) {
    expect_one_ranks_result(config, layout, expected, place);
  }
}

TEST(ImageTransformer, RanksWithoutImagesRunForwardAndBackward) {
  const VitConfig config = small_vit();
  for (const ImageLayout& layout :
       {ImageLayout{}, ImageLayout{.recompute = true}, ImageLayout{.tensor = 2},
        ImageLayout{.context = 3}, ImageLayout{.tensor = 3, .sequence = true},
        ImageLayout{.tensor = 2, .context = 2, .sequence = true},
        ImageLayout{.context = 2, .form = parallel::ContextForm::kAllToAll}}) {
    SCOPED_TRACE(layout.text());
    run_layout(layout, [&](const ModelAxes& axes) {
      const auto model = make_image_transformer(config, 3, at::kFloat, axes);
      model->set_recompute({.block = layout.recompute});
      const Result result = run(*model, 0);
      EXPECT_EQ(result.logits.sizes(), at::IntArrayRef({0, 5}));
      EXPECT_EQ(result.loss.item<float>(), 0);
      for (const auto& [name, gradient] : result.gradients)
        EXPECT_TRUE(gradient.eq(0).all().item<bool>()) << name;
    });
  }
}

TEST(ImageTransformer, WholeParametersGetTheSameGradientBitsOnAllTensorRanks) {
  const VitConfig config = small_vit();
  const ModelPlan plan = make_vit_plan(config, 3);
  for (const bool sequence : {false, true}) {
    run_layout({.tensor = 3, .sequence = sequence}, [&](const ModelAxes& axes) {
      const auto model = make_image_transformer(config, 3, at::kFloat, axes);
      for (const auto& [name, gradient] : run(*model, kImages).gradients) {
        if (plan.layout(name).placements()[0].kind != mesh::Placement::Kind::kReplicated) continue;
        at::Tensor of_root = gradient.clone();
        axes.tensor.group->broadcast(of_root, 0)->wait();
        harness::assert_same_bits(gradient, of_root, name);
      }
    });
  }
}

TEST(ImageTransformer, StagesComputeTheBitsOfTheWholeModel) {
  VitConfig config = small_vit();
  config.layers = 3;
  const at::Tensor images = some_images(config, kImages), labels = some_labels(config, kImages);
  const Result expected = of_one_rank(config);
  const auto stage = [&](const ModelPart& part) {
    return make_image_transformer(config, 3, at::kDouble, {}, part);
  };
  const std::vector<ModelPart> parts = {
      {.num_layers = 1, .has_head = false},
      {.first_layer = 1, .num_layers = 1, .embeds = false, .has_head = false},
      {.first_layer = 2, .embeds = false}};
  std::vector<std::unique_ptr<ImageTransformer>> stages;
  std::vector<at::Tensor> inputs, outputs;
  for (const ModelPart& part : parts) {
    stages.push_back(stage(part));
    inputs.push_back(outputs.empty() ? at::Tensor() : outputs.back().detach().requires_grad_());
    outputs.push_back(
        stages.back()->forward_part({.num_images = kImages,
                                     .images = outputs.empty() ? images : at::Tensor(),
                                     .hidden = inputs.back()}));
  }
  const at::Tensor logits = stages.back()->logits(outputs.back(), kImages);
  harness::assert_same_bits(logits.detach(), expected.logits, "logits");
  loss_of(logits, labels).backward();
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

TEST(ImageTransformer, RecomputationHasTheSameBits) {
  VitConfig config = small_vit();
  config.dropout = 0.2;
  const TrainingPlace place{.step = 1, .first_sample = 2};
  const auto result_of = [&](const RecomputePlan& plan) {
    const auto model = make_image_transformer(config, 3, at::kFloat);
    model->set_recompute(plan);
    return run(*model, kImages, place);
  };
  const Result expected = result_of({});
  for (const RecomputePlan& plan :
       {RecomputePlan{.block = true}, RecomputePlan{.attention = true},
        RecomputePlan{.attention_core = true}, RecomputePlan{.feed_forward = true}}) {
    const Result result = result_of(plan);
    harness::assert_same_bits(result.logits, expected.logits, "logits");
    harness::assert_same_bits(result.gradients, expected.gradients);
  }
}

TEST(ImageTransformer, UnitsHaveEveryParameterOnceAndRunInTheirOrder) {
  const VitConfig config = small_vit();
  const auto model = make_image_transformer(config, 1, at::kFloat);
  std::map<const void*, int> uses;
  for (const at::Tensor& p : model->module().parameters()) uses[p.unsafeGetTensorImpl()] = 0;
  const std::vector<parallel::Unit> units = model->units();
  for (const parallel::Unit& unit : units) {
    for (const at::Tensor& p : unit.parameters) ++uses.at(p.unsafeGetTensorImpl());
  }
  for (const auto& [parameter, count] : uses) EXPECT_EQ(count, 1);
  std::vector<size_t> runs;
  model->run_units_with(
      [&](size_t unit, const at::Tensor& x, const parallel::UnitForward& forward) {
        runs.push_back(unit);
        return forward(x);
      });
  model->logits_of(some_images(config, 1));
  EXPECT_EQ(runs, (std::vector<size_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(units.size(), 5U);
}

// Two steps of gradient descent on ranks with 2, 1 and 0 images. The weights after them.
Gradients weights_after_training(const VitConfig& config, comm::Communicator& group, int zero) {
  const auto model = make_image_transformer(config, 3, at::kFloat);
  parallel::DistributedDataParallel ddp(model->module(), group,
                                        {.zero = zero, .units = model->units()});
  model->run_units_with([&](size_t unit, const at::Tensor& x, const parallel::UnitForward& f) {
    return ddp.run(unit, x, f);
  });
  const int64_t first = group.rank() == 0 ? 0 : group.rank() + 1;
  const int64_t size = 2 - group.rank();
  for (int step = 0; step < 2; ++step) {
    ddp.begin_step(model->num_terms(size));
    const at::Tensor logits =
        model->logits_of(some_images(config, 3, at::kFloat).narrow(0, first, size));
    ddp.backward(loss_of(logits, some_labels(config, 3).narrow(0, first, size)));
    const at::NoGradGuard no_grad;
    for (const parallel::Shard& shard : ddp.shards())
      at::Tensor(shard.weights).sub_(shard.gradient, 0.1);
    ddp.end_step();
  }
  ddp.gather_parameters();
  Gradients weights;
  for (const auto& item : model->module().named_parameters())
    weights[item.key()] = item.value().detach().clone();
  return weights;
}

TEST(ImageTransformer, EveryZeroStageTrainsTheSameWeights) {
  const VitConfig config = small_vit();
  harness::run_ranks(3, [&](comm::Communicator& group) {
    const Gradients expected = weights_after_training(config, group, 0);
    EXPECT_FALSE(expected.at("classifier.bias").eq(0).any().item<bool>());
    for (const int zero : {1, 2, 3})
      harness::assert_same_bits(weights_after_training(config, group, zero), expected);
  });
}

TEST(ImageTransformer, EveryParameterLearnsInEveryPrecision) {
  const VitConfig config = small_vit();
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto model = make_image_transformer(config, 3, dtype);
    const at::Tensor logits = model->logits_of(some_images(config, kImages, at::kFloat));
    EXPECT_EQ(logits.scalar_type(), dtype);
    loss_of(logits.to(at::kFloat), some_labels(config, kImages)).backward();
    for (const auto& [name, gradient] : gradients_of(*model))
      EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << name;
  }
}

// Nothing is causal: the class token, the first, reads the last patch.
TEST(ImageTransformer, EveryPixelChangesTheLogitsOfItsImageAlone) {
  const VitConfig config = small_vit();
  const auto model = make_image_transformer(config, 3, at::kDouble);
  const at::NoGradGuard no_grad;
  const at::Tensor images = some_images(config, 2);
  const at::Tensor before = model->logits_of(images);
  for (const int64_t place : {0, 5}) {
    at::Tensor changed = images.clone();
    changed[1][2][place][place] += 1;
    const at::Tensor after = model->logits_of(changed);
    harness::assert_same_bits(after[0], before[0], "the other image");
    EXPECT_GT((after[1] - before[1]).abs().min().item<double>(), 1e-9);
  }
}

TEST(ImageTransformer, RefusesImagesItCannotRead) {
  const VitConfig config = small_vit();
  const auto model = make_image_transformer(config, 1, at::kFloat);
  const at::Tensor images = some_images(config, 2);
  EXPECT_THROW(model->logits_of(images.narrow(2, 0, 4)), ConfigError);
  EXPECT_THROW(model->logits_of(images.narrow(1, 0, 1)), ConfigError);
  EXPECT_THROW(model->logits_of(images.to(at::kByte)), ConfigError);
  EXPECT_THROW(model->forward_part({.num_images = 1, .images = images}), ConfigError);
  EXPECT_THROW(model->forward_part({.num_images = 1}), ConfigError);
}

}  // namespace
}  // namespace trireme::model
