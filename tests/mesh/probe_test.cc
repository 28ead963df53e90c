#include "trireme/mesh/probe.h"

#include <map>
#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::verify {
namespace {

using testing::HasSubstr;

class Collected : public ProbeSink {
 public:
  void put(const ProbedBlock& block) override {
    blocks.push_back(block);
    blocks.back().values = block.values.clone();
  }
  at::Tensor replayed(const ProbedBlock& block) override {
    return replays ? block.values + 1 : at::Tensor();
  }
  std::optional<uint64_t> perturbation() const override { return seed; }

  const ProbedBlock& of(const std::string& name) const {
    for (const ProbedBlock& block : blocks) {
      if (block.name == name) return block;
    }
    throw std::runtime_error("no probe " + name);
  }

  std::vector<ProbedBlock> blocks;
  bool replays = false;
  std::optional<uint64_t> seed;
};

// The second microbatch, of two of eight samples.
ProbeContext context_of(ProbeSink& sink) {
  return {.sink = &sink, .stage = 1, .first_sample = 2, .num_samples = 8, .samples = 2};
}

mesh::Box box(std::vector<int64_t> offset, std::vector<int64_t> size) {
  return {.offset = std::move(offset), .size = std::move(size)};
}

TEST(Probe, WithoutAListenerNothingIsDone) {
  const at::Tensor x = at::ones({2, 3}).requires_grad_();
  EXPECT_TRUE(probe("x", x).is_same(x));
  EXPECT_TRUE(probe("x", x, ProbeRows{.num_rows = 5}).is_same(x));
  const mesh::Layout wrong({9}, {{"data", 1}}, {mesh::Placement::partial()});
  EXPECT_TRUE(probe("x", x, wrong, 0).is_same(x));
  EXPECT_TRUE(probe_choices("x", x, {}).is_same(x));
  EXPECT_FALSE(ProbeScope::at("path"));
}

TEST(Probe, ATensorOfSamplesLiesBehindThoseOfEarlierMicrobatches) {
  Collected sink;
  const ProbeScope scope(context_of(sink));
  const at::Tensor x = at::arange(6.0).view({2, 3});
  EXPECT_TRUE(probe("x", x).is_same(x));
  const ProbedBlock& block = sink.of("x");
  EXPECT_EQ(block.whole, (std::vector<int64_t>{8, 3}));
  EXPECT_EQ(block.boxes, std::vector{box({2, 0}, {2, 3})});
  EXPECT_EQ(block.stage, 1);
  EXPECT_TRUE(at::equal(block.values, x));
  // Four rows of each sample.
  probe("tokens", at::zeros({8, 5}));
  EXPECT_EQ(sink.of("tokens").whole, (std::vector<int64_t>{32, 5}));
  EXPECT_EQ(sink.of("tokens").boxes, std::vector{box({8, 0}, {8, 5})});
}

TEST(Probe, RowsBecomeARunForEachGap) {
  Collected sink;
  const ProbeScope scope(context_of(sink));
  // Two samples of four tokens, of which this rank has the first and the last.
  probe("x", at::zeros({2, 2, 5}), ProbeRows{.num_rows = 8, .rows = at::tensor({0, 3, 4, 7})});
  EXPECT_EQ(sink.of("x").whole, (std::vector<int64_t>{32, 5}));
  EXPECT_EQ(sink.of("x").boxes,
            (std::vector{box({8, 0}, {1, 5}), box({11, 0}, {2, 5}), box({15, 0}, {1, 5})}));
  EXPECT_EQ(sink.of("x").values.sizes(), (std::vector<int64_t>{4, 5}));
}

TEST(Probe, ALayoutSaysWhichBlockARankHas) {
  Collected sink;
  const ProbeScope scope(context_of(sink));
  const mesh::Layout columns({2, 6}, {{"tensor", 2}}, {mesh::Placement::sharded(1)});
  probe("x", at::zeros({2, 3}), columns, 1);
  EXPECT_EQ(sink.of("x").whole, (std::vector<int64_t>{8, 6}));
  EXPECT_EQ(sink.of("x").boxes, std::vector{box({2, 3}, {2, 3})});
}

TEST(Probe, TheGradientComesWithTheWholeBackward) {
  Collected sink;
  at::Tensor x = at::ones({2, 3}).requires_grad_();
  at::Tensor sum;
  {
    ProbeContext context = context_of(sink);
    context.gradient_scale = 4;
    const ProbeScope scope(std::move(context));
    const at::Tensor y = probe("y", x * 2);
    sum = (y * 3).sum() + y.sum();
  }
  EXPECT_EQ(sink.blocks.size(), 1U);
  sum.backward();
  EXPECT_TRUE(at::equal(sink.of("y@gradient").values, at::ones({2, 3})));
  EXPECT_EQ(sink.of("y@gradient").boxes, sink.of("y").boxes);
  EXPECT_TRUE(at::equal(x.grad(), at::full({2, 3}, 8.0F)));
}

// 2^-24 is the smallest number of fp16.
TEST(Probe, AGradientIsNotLostWithItsScale) {
  Collected sink;
  at::Tensor y;
  {
    ProbeContext context = context_of(sink);
    context.gradient_scale = 0x1p16;
    const ProbeScope scope(std::move(context));
    y = probe("y", at::ones({2, 3}).requires_grad_().to(at::kHalf));
  }
  y.backward(at::full({2, 3}, 0x1p-14, at::kHalf));
  EXPECT_TRUE(at::equal(sink.of("y@gradient").values, at::full({2, 3}, 0x1p-30, at::kFloat)));
}

TEST(Probe, NamesHaveTheModulesPath) {
  Collected sink;
  const ProbeScope scope(context_of(sink));
  {
    const ProbeScope inner(ProbeScope::at("model.layers.3").value());
    probe("attention", at::zeros({2, 1}));
  }
  probe("norm", at::zeros({2, 1}));
  EXPECT_EQ(sink.blocks[0].name, "model.layers.3.attention");
  EXPECT_EQ(sink.blocks[1].name, "norm");
  // A listener is one thread's.
  std::thread([] { EXPECT_FALSE(is_probing()); }).join();
}

TEST(Probe, APerturbationIsARoundoffByTheElementsPlace) {
  Collected sink, other;
  sink.seed = other.seed = 7;
  const at::Tensor x = at::linspace(1, 2, 64, at::kDouble).view({2, 32});
  at::Tensor whole;
  {
    const ProbeScope scope(context_of(sink));
    whole = probe("x", x);
  }
  const at::Tensor off = ((whole - x) / x).abs();
  EXPECT_GT(off.min().item<double>(), 0);
  EXPECT_LE(off.max().item<double>(), 0x1p-51);
  EXPECT_GT(whole.gt(x).sum().item<int64_t>(), 16);
  EXPECT_GT(whole.lt(x).sum().item<int64_t>(), 16);
  EXPECT_TRUE(at::equal(sink.of("x").values, whole));
  // The same rows, from two ranks.
  for (const int64_t sample : {0, 1}) {
    ProbeContext context = context_of(other);
    context.first_sample += sample;
    context.samples = 1;
    const ProbeScope scope(std::move(context));
    EXPECT_TRUE(at::equal(probe("x", x.narrow(0, sample, 1)), whole.narrow(0, sample, 1)));
  }
}

TEST(Probe, TheGradientThatGoesOnHasTheSameRoundoffs) {
  Collected sink;
  sink.seed = 7;
  const ProbeScope scope(context_of(sink));
  const at::Tensor x = at::ones({2, 300, 200}, at::kDouble).requires_grad_();
  const at::Tensor y = probe("x", x, {.num_rows = 600});
  EXPECT_EQ((y - 1).abs().min().item<double>(), 0x1p-52);
  y.backward(at::ones_like(y));
  EXPECT_TRUE(at::equal(sink.of("x@gradient").values, at::ones({600, 200}, at::kDouble)));
  EXPECT_TRUE(at::equal(x.grad(), y));
}

TEST(Probe, ChoicesCanBeReplaced) {
  Collected sink;
  const ProbeScope scope(context_of(sink));
  const at::Tensor own = at::tensor({3, 1, 0, 2}).view({2, 2});
  EXPECT_TRUE(probe_choices("router", own, {.num_rows = 2}).is_same(own));
  EXPECT_TRUE(at::equal(sink.of("router@choices").values, own));
  sink.replays = true;
  EXPECT_TRUE(at::equal(probe_choices("router", own, {.num_rows = 2}), own + 1));
}

TEST(Probe, WhatHasNoPlaceIsRefused) {
  Collected sink;
  const ProbeScope scope(context_of(sink));
  const auto message = [](const auto& call) { return harness::message_of<ConfigError>(call); };
  EXPECT_THAT(message([] { probe("x", at::zeros({3, 1})); }), HasSubstr("3 rows for 2 samples"));
  EXPECT_THAT(message([] { probe("x", at::ones({})); }), HasSubstr("is a number"));
  EXPECT_THAT(message([] {
                probe("x", at::zeros({4, 1}), ProbeRows{.num_rows = 8});
              }),
              HasSubstr("4 rows; expected 8"));
  EXPECT_THAT(message([] {
                probe("x", at::zeros({4, 1}), ProbeRows{.num_rows = 8, .rows = at::tensor({1, 2})});
              }),
              HasSubstr("4 rows; expected 2"));
  const mesh::Layout sum({2, 3}, {{"tensor", 2}}, {mesh::Placement::partial()});
  EXPECT_THAT(message([&] { probe("x", at::zeros({2, 3}), sum, 0); }), HasSubstr("partial sum"));
  const mesh::Layout split({2, 6}, {{"tensor", 2}}, {mesh::Placement::sharded(1)});
  EXPECT_THAT(message([&] { probe("x", at::zeros({2, 6}), split, 0); }), HasSubstr("[2, 3]"));
  EXPECT_TRUE(sink.blocks.empty());
}

}  // namespace
}  // namespace trireme::verify
