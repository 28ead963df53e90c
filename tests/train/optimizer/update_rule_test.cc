#include "trireme/train/optimizer/update_rule.h"

#include <algorithm>
#include <string_view>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "tests/train/optimizer/runs.h"
#include "trireme/train/optimizer/adamw_pass.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::train {
namespace {

// What every rule promises, whatever it computes.
class EveryRule : public ::testing::TestWithParam<std::string> {
 protected:
  const OptimizerConfig config_{.name = GetParam()};
  const std::unique_ptr<const UpdateRule> rule_ = make_update_rule(config_);

  // An item a shard, with states that no two share.
  std::vector<UpdateItem> make_items(at::ScalarType gradient_dtype) const {
    std::vector<UpdateItem> items;
    for (const parallel::Shard& shard : make_shards(at::kFloat)) {
      UpdateItem item{.weights = shard.weights,
                      .gradient = gradient_at(1, shard, gradient_dtype),
                      .weight_decay = items.size() % 3 == 0 ? 0 : 0.1,
                      .rate_scale = items.size() % 2 == 0 ? 1 : 0.5};
      for (const StateSpec& spec : rule_->state_of(shard)) {
        item.state.push_back(at::full(spec.local_shape, 0.25, at::kFloat));
      }
      items.push_back(std::move(item));
    }
    return items;
  }

  static void expect_same(const std::vector<UpdateItem>& actual,
                          const std::vector<UpdateItem>& expected) {
    for (size_t i = 0; i < actual.size(); ++i) {
      harness::assert_same_bits(actual[i].weights, expected[i].weights, "weights");
      for (size_t k = 0; k < actual[i].state.size(); ++k) {
        harness::assert_same_bits(actual[i].state[k], expected[i].state[k], "state");
      }
    }
  }
};

TEST_P(EveryRule, AnItemsUpdateDependsOnThatItemAlone) {
  const std::vector<UpdateItem> together = make_items(at::kFloat);
  const std::vector<UpdateItem> alone = make_items(at::kFloat);
  const std::vector<UpdateItem> backwards = make_items(at::kFloat);
  rule_->update(together, 0.1, 3);
  for (const UpdateItem& item : alone) rule_->update(std::span(&item, 1), 0.1, 3);
  const std::vector<UpdateItem> reversed(backwards.rbegin(), backwards.rend());
  rule_->update(reversed, 0.1, 3);
  expect_same(alone, together);
  expect_same(backwards, together);
  for (const UpdateItem& item : together) {
    EXPECT_TRUE(at::isfinite(item.weights).all().item<bool>());
  }
}

TEST_P(EveryRule, AGradientOfLowerPrecisionIsConverted) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const std::vector<UpdateItem> low = make_items(dtype);
    std::vector<UpdateItem> converted = make_items(dtype);
    for (UpdateItem& item : converted) item.gradient = item.gradient.to(at::kFloat);
    rule_->update(low, 0.1, 3);
    rule_->update(converted, 0.1, 3);
    // adamw_pass() has the formula of libtorch's kernel, and rounds ten operations otherwise.
    constexpr std::string_view kWithPass[] = {"adamw", "muon", "onebit-adam", "zero-one-adam"};
    const bool has_pass = has_adamw_pass(low[0]) && std::ranges::count(kWithPass, GetParam()) > 0;
    if (!has_pass) {
      expect_same(low, converted);
      continue;
    }
    for (size_t i = 0; i < low.size(); ++i) {
      constexpr double kBound = 10 * 0x1p-24;
      harness::assert_close(low[i].weights, converted[i].weights, kBound, 0, "weights");
      for (size_t k = 0; k < low[i].state.size(); ++k)
        harness::assert_close(low[i].state[k], converted[i].state[k], kBound, 0, "state");
    }
  }
}

TEST_P(EveryRule, ARateOfZeroMovesNoWeight) {
  const std::vector<UpdateItem> items = make_items(at::kFloat);
  const std::vector<parallel::Shard> start = make_shards(at::kFloat);
  if (GetParam() == "lars") {  // its buffer holds steps already made
    for (const UpdateItem& item : items) item.state[0].zero_();
  }
  rule_->update(items, 0.0, 3);
  for (size_t i = 0; i < items.size(); ++i) {
    harness::assert_same_bits(items[i].weights, start[i].weights, start[i].name);
  }
}

TEST_P(EveryRule, StatesLieAsTheirLayoutsSay) {
  for (const parallel::Shard& shard : make_shards(at::kFloat)) {
    for (const StateSpec& spec : rule_->state_of(shard)) {
      EXPECT_EQ(spec.local_shape, spec.layout.local_box(0).size) << spec.name << " " << shard.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryRule, ::testing::ValuesIn(optimizer_names()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(UpdateRule, AStateLikeItsParameterLiesAsItDoes) {
  const parallel::Shard shard{
      .name = "w",
      .weights = at::zeros({2, 64}),
      .layout = mesh::Layout({5, 64}, {{"shard", 2}}, {mesh::Placement::sharded(0, {0, 2, 5})})};
  const StateSpec spec = state_like(shard, "exp_avg");
  EXPECT_EQ(spec.name, "exp_avg");
  EXPECT_EQ(spec.local_shape, std::vector<int64_t>({2, 64}));
  EXPECT_EQ(spec.layout, shard.layout);
}

TEST(UpdateRule, AGradientOfTheSameDtypeIsNotCopied) {
  UpdateItem item{.weights = at::zeros({3}), .gradient = at::ones({3})};
  EXPECT_EQ(converted_gradient(item).const_data_ptr(), item.gradient.const_data_ptr());
  item.gradient = item.gradient.to(at::kBFloat16);
  EXPECT_EQ(converted_gradient(item).scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace trireme::train
