#include "trireme/model/layers/dropout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/tensors.h"
#include "tests/model/small_config.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

using harness::assert_close;
using harness::assert_same_bits;

constexpr RandomKey kKey{0x1234'5678'9abc'def0};

at::Tensor values_of(at::IntArrayRef shape, at::ScalarType dtype) {
  return (at::arange(at::zeros(shape).numel(), at::kDouble) * 0.37).cos().view(shape).to(dtype);
}

// 0 or 1 / (1 - p), by the formula of the header.
at::Tensor mask_of(const std::vector<int64_t>& rows, int64_t width, double probability) {
  const at::Tensor mask = at::zeros({std::ssize(rows), width}, at::kDouble);
  const auto blocks = static_cast<uint64_t>((width + 3) / 4);
  for (int64_t row = 0; row < std::ssize(rows); ++row) {
    for (int64_t d = 0; d < width; ++d) {
      const auto number = static_cast<uint64_t>(rows[static_cast<size_t>(row)]);
      const auto bits = random_bits(kKey, number * blocks + static_cast<uint64_t>(d) / 4);
      const bool keeps = bits[static_cast<size_t>(d % 4)] >= probability * 0x1p32;
      if (keeps) mask[row][d] = 1 / (1 - probability);
    }
  }
  return mask;
}

TEST(Drop, EveryElementFollowsFromItsRowAndChannel) {
  const std::vector<int64_t> rows = {0, 5, 4, 1'000'000'007, 6};
  const at::Tensor rows_S = at::tensor(rows, at::kLong);
  for (const int64_t width : {1, 3, 4, 7, 64, 130}) {
    for (const double probability : {0.0, 0.1, 0.5, 0.99}) {
      const at::Tensor mask = mask_of(rows, width, probability);
      for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
        const at::Tensor x = values_of({5, width}, dtype), residual = x.mul(-0.3).add(1);
        const at::Tensor dropped = x.to(at::kDouble) * mask;
        // One rounding of the product and one of the sum.
        const double ulp = dtype == at::kDouble ? 0x1p-52 : dtype == at::kFloat ? 0x1p-23 : 0x1p-7;
        assert_close(drop(x, {}, rows_S, kKey, probability).to(at::kDouble), dropped, ulp, 0, "x");
        assert_close(drop(x, residual, rows_S, kKey, probability).to(at::kDouble),
                     dropped + residual.to(at::kDouble), 2 * ulp, 0, "sum");
      }
    }
  }
}

TEST(Drop, ACutOfTheRowsHasTheMaskOfTheWhole) {
  const at::Tensor rows_S = at::arange(40, 64, at::kLong);
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf}) {
    const at::Tensor x = values_of({4, 6, 10}, dtype);
    const at::Tensor whole = drop(x, {}, rows_S, kKey, 0.3).view({24, 10});
    std::vector<at::Tensor> parts;
    for (int64_t first = 0, size = 0; first < 24; first += size, ++size) {
      size = std::min(size, 24 - first);  // 0, 1, 2, ...
      parts.push_back(drop(x.view({24, 10}).narrow(0, first, size), {},
                           rows_S.narrow(0, first, size), kKey, 0.3));
    }
    assert_same_bits(at::cat(parts), whole, "parts");
    const at::Tensor order = at::randperm(24);
    assert_same_bits(
        drop(x.view({24, 10}).index_select(0, order), {}, rows_S.index_select(0, order), kKey, 0.3),
        whole.index_select(0, order), "another order");
  }
}

TEST(Drop, ACutOfTheColumnsHasTheMaskOfTheWhole) {
  const at::Tensor rows_S = at::arange(40, 46, at::kLong);
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf}) {
    const at::Tensor x = values_of({6, 10}, dtype);
    const at::Tensor whole = drop(x, {}, rows_S, kKey, 0.3);
    std::vector<at::Tensor> parts;
    for (const mesh::Range cut : {mesh::Range{0, 3}, {3, 0}, {3, 6}, {9, 1}}) {
      const at::Tensor own = x.narrow(1, cut.offset, cut.size).clone().requires_grad_();
      parts.push_back(drop(own, {}, rows_S, kKey, 0.3, CutColumns{cut.offset, 10}));
      parts.back().sum().backward();
      const at::Tensor kept = whole.narrow(1, cut.offset, cut.size).ne(0);
      assert_same_bits(own.grad().ne(0), kept, "gradient");
    }
    assert_same_bits(at::cat(parts, 1).detach(), whole, "parts");
  }
}

TEST(Dropout, RowsOfAllTensorRanksHaveTheMasksOfEach) {
  const at::Tensor rows_S = at::arange(6, at::kLong), x = values_of({6, 8}, at::kDouble);
  const Dropout dropout(0.4, "adapter");
  const auto batch_of = [](const at::Tensor& own, const at::Tensor& whole) {
    return TokenBatch{.dropout = std::make_shared<const RandomDraw>(RandomDraw{1, 2, own, whole})};
  };
  const at::Tensor expected = dropout.forward(x, batch_of(rows_S, {}));
  const TokenBatch batch = batch_of(rows_S.narrow(0, 4, 2), rows_S);
  const CutColumns all{.whole = 8}, last{.offset = 5, .whole = 8};
  assert_same_bits(dropout.forward(x.narrow(0, 4, 2), all, batch), expected.narrow(0, 4, 2), "own");
  assert_same_bits(dropout.forward(x, all, batch), expected, "whole");
  assert_same_bits(dropout.forward(x.narrow(1, 5, 3), last, batch), expected.narrow(1, 5, 3),
                   "columns");
}

TEST(Drop, KeepsItsShareAndTheMean) {
  const int64_t S = 500, D = 400;
  for (const double p : {0.01, 0.1, 0.5, 0.9}) {
    const at::Tensor out =
        drop(at::ones({S, D}, at::kDouble), {}, at::arange(S, at::kLong), kKey, p);
    const double kept = out.ne(0).to(at::kDouble).mean().item<double>();
    // Six standard errors of a mean of S * D draws: a right generator fails one seed in 5e8.
    const double bound = 6 * std::sqrt(p * (1 - p) / static_cast<double>(S * D));
    EXPECT_NEAR(kept, 1 - p, bound) << p;
    EXPECT_NEAR(out.mean().item<double>(), 1, bound / (1 - p)) << p;
  }
}

TEST(Drop, TheGradientHasTheSameMaskAndTheResidualsIsUntouched) {
  const at::Tensor rows_S = at::arange(7, 13, at::kLong);
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor x = values_of({6, 9}, dtype).requires_grad_();
    const at::Tensor residual = values_of({6, 9}, dtype).requires_grad_();
    const at::Tensor grad = values_of({6, 9}, dtype).mul(3);
    drop(x, residual, rows_S, kKey, 0.4).backward(grad);
    assert_same_bits(x.grad(), drop(grad, {}, rows_S, kKey, 0.4), "x");
    assert_same_bits(residual.grad(), grad, "residual");
  }
}

TEST(Drop, WhatIsDroppedIsZeroWhateverItWas) {
  const at::Tensor rows_S = at::arange(20, at::kLong);
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::full({20, 10}, std::numeric_limits<double>::infinity(), dtype);
    const at::Tensor out = drop(x, {}, rows_S, kKey, 0.5);
    EXPECT_FALSE(out.isnan().any().item<bool>());
    EXPECT_TRUE(out.eq(0).any().item<bool>());
  }
}

TEST(Dropout, SeedStepAndPlaceEachDrawAnew) {
  const at::Tensor rows_S = at::arange(30, at::kLong);
  const at::Tensor x = at::ones({30, 8});
  const auto masked = [&](uint64_t seed, int64_t step, const char* place) {
    const TokenBatch batch{.dropout =
                               std::make_shared<const RandomDraw>(RandomDraw{seed, step, rows_S})};
    return Dropout(0.5, place).forward(x, batch);
  };
  const std::vector<at::Tensor> all = {masked(1, 0, "a"), masked(2, 0, "a"), masked(1, 1, "a"),
                                       masked(1, 0, "b")};
  assert_same_bits(all[0], masked(1, 0, "a"), "again");
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      // Independent masks of p = 1/2 agree in half of 240 elements, with six standard errors.
      const double agree = all[i].eq(all[j]).to(at::kDouble).mean().item<double>();
      EXPECT_NEAR(agree, 0.5, 6 * 0.5 / std::sqrt(240)) << i << " and " << j;
    }
  }
}

TEST(Dropout, IsNotThereWithoutProbabilityOrTraining) {
  const at::Tensor x = at::ones({3, 4});
  EXPECT_TRUE(Dropout(0.5, "a").forward(x, {}).is_same(x));
  const TokenBatch training{.dropout = std::make_shared<const RandomDraw>()};
  EXPECT_TRUE(Dropout(0, "a").forward(x, training).is_same(x));
}

TEST(Dropout, ClosesABranchWithoutDroppingTheResidual) {
  const at::Tensor x = values_of({5, 6}, at::kDouble), residual = values_of({5, 8}, at::kDouble);
  const parallel::LinearWeight layer{values_of({8, 6}, at::kDouble).sin(),
                                     values_of({8}, at::kDouble)};
  const at::Tensor branch = at::linear(x, layer.weight, layer.bias);
  const TokenBatch batch{
      .dropout = std::make_shared<const RandomDraw>(RandomDraw{1, 2, at::arange(5, at::kLong)})};
  const at::Tensor dropped =
      drop(branch, {}, batch.dropout->rows_S, random_key(1, "dropout/2/here"), 0.5);
  const auto close = [&](double probability, const TokenBatch& tokens) {
    return Dropout(probability, "here").close_branch(x, layer, residual, {}, tokens);
  };
  assert_close(close(0.5, batch), dropped + residual, 1e-14, 0, "dropped");
  assert_close(close(0, batch), branch + residual, 1e-14, 0, "probability 0");
  assert_same_bits(close(0.5, {}), close(0, batch), "not in training");
}

struct Step {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;
};

// Forward and backward of 4 sequences, `micro_batch` at a time.
Step step_of(const ModelConfig& config, int64_t micro_batch, bool training, int64_t step = 3) {
  const at::Tensor tokens = at::arange(32).mul(7).remainder(11).view({4, 8});
  const auto model = make_model(config, 5, at::kDouble);
  Step result{at::zeros({}, at::kDouble), {}};
  for (int64_t first = 0; first < 4; first += micro_batch) {
    const at::Tensor part = tokens.narrow(0, first, micro_batch);
    const TrainingPlace place{.step = step, .first_sample = first};
    const Loss loss =
        model->loss(part, part, training ? std::optional(place) : std::optional<TrainingPlace>());
    loss.sum.backward();
    result.loss += loss.sum.detach();
  }
  for (const at::Tensor& p : model->module().parameters()) result.gradients.push_back(p.grad());
  return result;
}

TEST(Dropout, AModelsMicrobatchesDrawWhatTheWholeBatchDraws) {
  for (const char* family : {"llama", "gpt2"}) {
    const ModelConfig config = small_config(family, 0.2);
    const Step whole = step_of(config, 4, true);
    for (const int64_t micro_batch : {1, 2}) {
      const Step parts = step_of(config, micro_batch, true);
      assert_close(parts.loss, whole.loss, 1e-13, 0, "loss");
      for (size_t i = 0; i < whole.gradients.size(); ++i) {
        // Relative to the largest of all: a key's bias has no gradient but its rounding.
        assert_close(parts.gradients[i], whole.gradients[i], 1e-12, 1e-13, "gradient");
      }
    }
  }
}

TEST(Dropout, AModelDropsInTrainingAloneAndAnewEachStep) {
  for (const char* family : {"llama", "gpt2"}) {
    const Step plain = step_of(small_config(family, 0), 4, false);
    const Step evaluated = step_of(small_config(family, 0.2), 4, false);
    const Step without = step_of(small_config(family, 0), 4, true);
    for (size_t i = 0; i < plain.gradients.size(); ++i) {
      assert_same_bits(evaluated.gradients[i], plain.gradients[i], "not in training");
      assert_same_bits(without.gradients[i], plain.gradients[i], "probability 0");
    }
    const auto loss = [&](int64_t step) {
      return step_of(small_config(family, 0.2), 4, true, step).loss.item<double>();
    };
    EXPECT_EQ(loss(3), loss(3));
    EXPECT_GT(std::abs(loss(3) - loss(4)), 1e-6);
    EXPECT_GT(std::abs(loss(3) - plain.loss.item<double>()), 1e-6);
  }
}

// Of a model whose every other part is known: one block with zero weights passes its input on, so
// the state is the embedding, dropped once.
TEST(Dropout, TheEmbeddingIsDroppedOnce) {
  ModelConfig config = small_config("llama", 0.25);
  config.layers = 1;
  const auto model = make_model(config, 5, at::kDouble);
  const at::NoGradGuard no_grad;
  for (const auto& item : model->module().named_parameters()) {
    if (item.key().find("layers") != std::string::npos) item.value().zero_();
  }
  const at::Tensor tokens = at::arange(8).view({1, 8});
  const at::Tensor embedding =
      model->module().named_parameters()["model.embed_tokens.weight"].index_select(
          0, tokens.flatten());
  const RandomKey key = random_key(5, "dropout/3/embedding");
  const at::Tensor dropped = drop(embedding, {}, at::arange(16, 24, at::kLong), key, 0.25);
  const at::Tensor normed = dropped * at::rsqrt(dropped.square().mean(-1, true) + 1e-5);
  const at::Tensor hidden =
      model
          ->forward_part(
              {.tokens_BT = tokens, .training = TrainingPlace{.step = 3, .first_sample = 2}})
          .hidden;
  assert_close(hidden.view({8, 16}), normed, 1e-13, 0, "hidden");
}

}  // namespace
}  // namespace trireme::model
