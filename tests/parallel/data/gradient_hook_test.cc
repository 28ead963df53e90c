// Hooks inside DDP: every stage, every size of buckets, the same bits; bytes counted; what does not
// go together refused.
#include "trireme/parallel/data/gradient_hook.h"

#include <map>
#include <mutex>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/ranks.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/parallel/data/compression/feedback_hooks.h"
#include "trireme/parallel/data/compression/narrow_hooks.h"
#include "trireme/parallel/data/ddp.h"

namespace trireme::parallel {
namespace {

using Tensors = std::map<std::string, at::Tensor>;
using MakeHook = std::function<std::shared_ptr<GradientHook>()>;

constexpr int64_t kWidth = 80;

struct HookedNet : torch::nn::Module {
  explicit HookedNet(at::ScalarType dtype = at::kFloat) {
    const auto wave = [&](at::IntArrayRef shape) {
      const at::Tensor index = at::arange(at::zeros(shape).numel(), at::kDouble).view(shape);
      return ((index * 1.7).sin() * 0.1).to(dtype);
    };
    w1 = register_parameter("w1", wave({kWidth, kWidth}));
    frozen = register_parameter("frozen", wave({kWidth}) + 1, /*requires_grad=*/false);
    bias = register_parameter("bias", wave({kWidth}));
    empty = register_parameter("empty", wave({0, 3}));
    gain = register_parameter("gain", at::ones({}, dtype));
    w2 = register_parameter("w2", wave({kWidth, 33}));
  }
  at::Tensor loss(
      const at::Tensor& x,
      const std::function<at::Tensor(size_t, const at::Tensor&, const UnitForward&)>& run) {
    const at::Tensor y =
        run(0, x, [&](const at::Tensor& x) { return at::tanh((x * frozen).mm(w1) + bias) * gain; });
    return y.mm(w2).square().sum() + empty.sum();
  }
  std::vector<Unit> units() { return {{"first", {w1, frozen, bias, gain}}}; }
  at::Tensor w1, frozen, bias, empty, gain, w2;
};

struct Case {
  int zero = 0;
  int64_t bucket_bytes = 1 << 20;
  bool overlap = true;
  bool symmetric = true;
  bool reduce_in_fp32 = false;
  bool rank_first = false;
  at::ScalarType dtype = at::kFloat;
};

// Three steps of plain gradient descent on the shards; the final weights, whole.
Tensors train(comm::Communicator& world, const MakeHook& make_hook, const Case& test) {
  HookedNet net(test.dtype);
  DistributedDataParallel ddp(net, world,
                              {.zero = test.zero,
                               .units = net.units(),
                               .bucket_bytes = test.bucket_bytes,
                               .overlap = test.overlap,
                               .symmetric = test.symmetric,
                               .rank_first = test.rank_first,
                               .reduce_in_fp32 = test.reduce_in_fp32,
                               .hook = make_hook ? make_hook() : nullptr});
  for (int step = 0; step < 3; ++step) {
    ddp.begin_step(5, 2);
    for (int i = 0; i < 2; ++i) {
      const double seed = 0.3 * step + 1.1 * world.rank() + 2.3 * i;
      const at::Tensor x = ((at::arange(5 * kWidth, at::kDouble) + seed).sin()).view({5, kWidth});
      ddp.backward(
          net.loss(x.to(test.dtype), [&](auto... arguments) { return ddp.run(arguments...); }));
    }
    const c10::NoGradGuard no_grad;
    for (const Shard& shard : ddp.shards()) {
      if (shard.gradient.defined()) shard.weights.add_(shard.gradient, -0.05);
    }
    ddp.end_step();
  }
  ddp.gather_parameters();
  Tensors result;
  for (const auto& item : net.named_parameters()) {
    result[item.key()] = item.value().detach().clone();
  }
  return result;
}

Tensors train_on(int ranks, const MakeHook& make_hook, const Case& test) {
  std::mutex mutex;
  std::vector<Tensors> results(static_cast<size_t>(ranks));
  harness::run_ranks(ranks, [&](comm::Communicator& world) {
    Tensors mine = train(world, make_hook, test);
    const std::lock_guard lock(mutex);
    results[static_cast<size_t>(world.rank())] = std::move(mine);
  });
  for (const Tensors& other : results) {
    for (const auto& [name, tensor] : results[0]) {
      harness::assert_same_bits(other.at(name), tensor, name);
    }
  }
  return results[0];
}

// A hook that does what the reducer does without one.
struct PlainHook : GradientHook {
  int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) override {
    group.all_reduce(bucket.flat)->wait();
    return 7;
  }
};

const std::map<std::string, MakeHook>& hooks() {
  static const std::map<std::string, MakeHook> kHooks = {
      {"plain", [] { return std::make_shared<PlainHook>(); }},
      {"bf16", [] { return std::make_shared<CastHook>(at::kBFloat16); }},
      {"fp16", [] { return std::make_shared<CastHook>(at::kHalf); }},
      {"int8", [] { return std::make_shared<Int8Hook>(); }},
      {"powersgd", [] { return std::make_shared<PowerSgdHook>(); }},
      {"topk", [] { return std::make_shared<TopKHook>(0.02); }},
      {"warm", [] { return std::make_shared<WarmUpHook>(std::make_shared<TopKHook>(0.02), 1); }}};
  return kHooks;
}

TEST(GradientHook, EveryStageHasTheBitsOfDdpOnOneToFourRanks) {
  for (const auto& [name, hook] : hooks()) {
    for (const bool rank_first : {false, true}) {
      for (const int ranks : {1, 2, 3, 4}) {
        const Tensors expected = train_on(ranks, hook, {.rank_first = rank_first});
        for (const int zero : {1, 2, 3}) {
          SCOPED_TRACE(concat(name, ", ", ranks, " ranks, zero ", zero, ", first ", rank_first));
          const Case test{.zero = zero, .rank_first = rank_first};
          harness::assert_same_bits(train_on(ranks, hook, test), expected);
        }
      }
    }
  }
}

TEST(GradientHook, BucketsOverlapAndMemoryChangeNoBit) {
  for (const auto& [name, hook] : hooks()) {
    const Tensors expected = train_on(2, hook, {});
    for (const int zero : {0, 3}) {
      for (const Case& test :
           {Case{.zero = zero, .bucket_bytes = 1}, Case{.zero = zero, .bucket_bytes = 1 << 14},
            Case{.zero = zero, .overlap = false}, Case{.zero = zero, .symmetric = false}}) {
        SCOPED_TRACE(concat(name, ", zero ", zero, ", buckets of ", test.bucket_bytes));
        harness::assert_same_bits(train_on(2, hook, test), expected);
      }
    }
  }
}

TEST(GradientHook, ThatSumsPlainlyChangesNoBit) {
  for (const bool rank_first : {false, true}) {
    for (const int zero : {0, 1, 2, 3}) {
      const Case test{.zero = zero, .rank_first = rank_first};
      harness::assert_same_bits(train_on(3, hooks().at("plain"), test), train_on(3, nullptr, test));
    }
  }
}

TEST(GradientHook, TakesGradientsOfOtherDtypes) {
  for (const auto& [name, hook] : hooks()) {
    for (const Case& test : {Case{.dtype = at::kBFloat16}, Case{.dtype = at::kDouble},
                             Case{.reduce_in_fp32 = true, .dtype = at::kBFloat16}}) {
      SCOPED_TRACE(concat(name, " ", test.dtype));
      const Tensors expected = train_on(2, hook, test);
      Case sharded = test;
      sharded.zero = 2;
      harness::assert_same_bits(train_on(2, hook, sharded), expected);
      EXPECT_TRUE(expected.at("w1").isfinite().all().item<bool>());
    }
  }
}

TEST(GradientHook, IsToldOfEveryTrainedGradientAndEveryStep) {
  struct Listener : PlainHook {
    void prepare(std::span<const GradientSpec> gradients) override {
      for (const GradientSpec& gradient : gradients) shapes[gradient.name] = gradient.shape;
    }
    void begin_step() override { indices.push_back(-1); }
    int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) override {
      indices.push_back(static_cast<int64_t>(bucket.index));
      EXPECT_EQ(bucket.gradients.size(), bucket.names.size());
      for (size_t i = 0; i < bucket.names.size(); ++i) {
        EXPECT_EQ(bucket.gradients[i].sizes().vec(), shapes.at(bucket.names[i]));
      }
      return PlainHook::all_reduce(bucket, group);
    }
    std::map<std::string, std::vector<int64_t>> shapes;
    std::vector<int64_t> indices;
  };
  const auto listener = std::make_shared<Listener>();
  train_on(1, [&] { return listener; }, {.bucket_bytes = 1 << 14});
  EXPECT_EQ(listener->shapes.size(), 5u);
  EXPECT_FALSE(listener->shapes.contains("frozen"));
  EXPECT_EQ(listener->indices, (std::vector<int64_t>{-1, 0, 1, -1, 0, 1, -1, 0, 1}));
  listener->indices.clear();
  train_on(1, [&] { return listener; }, {.bucket_bytes = 1 << 14, .rank_first = true});
  // In each of two microbatches.
  EXPECT_EQ(listener->indices,
            (std::vector<int64_t>{-1, 0, 1, 0, 1, -1, 0, 1, 0, 1, -1, 0, 1, 0, 1}));
}

TEST(GradientHook, BytesAreCountedWithAndWithoutOne) {
  for (const int ranks : {1, 2, 4}) {
    harness::run_ranks(ranks, [&](comm::Communicator& inner) {
      for (const int zero : {0, 1, 2, 3}) {
        for (const bool hooked : {false, true}) {
          harness::CountingCommunicator group(inner);
          HookedNet net;
          DistributedDataParallel ddp(net, group,
                                      {.zero = zero,
                                       .units = net.units(),
                                       .hook = hooked ? hooks().at("plain")() : nullptr});
          ddp.begin_step(1);
          group.ledger().clear();
          ddp.backward(net.loss(at::ones({1, kWidth}),
                                [&](auto... arguments) { return ddp.run(arguments...); }));
          // w1, w2, bias, gain: each at a multiple of 16 elements. One bucket, two with ZeRO-3.
          const int64_t n = 4 * (80 * 80 + 80 * 33 + 80 + 16);
          const int64_t plain = (zero == 0 ? 2 : 1) * (ranks - 1) * n / ranks;
          EXPECT_EQ(ddp.gradient_bytes(), !hooked ? plain : zero == 3 ? 14 : 7);
          EXPECT_EQ(group.ledger().of(group.name()).bytes,
                    hooked ? 2 * (ranks - 1) * n / ranks : plain);
        }
      }
    });
  }
}

TEST(GradientHook, WhatDoesNotGoTogetherIsRefused) {
  harness::run_ranks(2, [](comm::Communicator& world) {
    const auto hook = hooks().at("plain")();
    HookedNet net;
    EXPECT_THROW(DistributedDataParallel(net, world, {.reproducible = true, .hook = hook}),
                 ConfigError);
    const auto alone = world.split(world.rank(), 0, "alone");
    EXPECT_THROW(DistributedDataParallel(net, {*alone, &world}, {.zero = 1, .hook = hook}),
                 ConfigError);
  });
}

}  // namespace
}  // namespace trireme::parallel
