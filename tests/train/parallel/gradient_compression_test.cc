#include "trireme/train/parallel/gradient_compression.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/parallel/data/compression/feedback_hooks.h"
#include "trireme/parallel/data/compression/narrow_hooks.h"
#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::train {
namespace {

std::shared_ptr<parallel::GradientHook> hook_of(const char* rule, int64_t warmup = 0) {
  TrainConfig train;
  train.compression = choose(parallel::kCompressions, "rule", rule);
  train.compression_rank = 2;
  train.compression_warmup = warmup;
  auto hook = make_gradient_hook(train);
  const std::vector<parallel::GradientSpec> gradients = {{"w", {12, 10}, at::kFloat},
                                                         {"b", {}, at::kFloat}};
  if (hook) hook->prepare(gradients);
  return hook;
}

std::vector<mesh::Axis> axes(int data, int shard) { return {{"data", data}, {"shard", shard}}; }

template <typename Hook>
bool is_a(const std::shared_ptr<parallel::GradientHook>& hook) {
  return dynamic_cast<Hook*>(hook.get()) != nullptr;
}

TEST(GradientCompression, TheConfigNamesTheHook) {
  EXPECT_EQ(hook_of("none", 5), nullptr);
  EXPECT_TRUE(is_a<parallel::CastHook>(hook_of("bf16")));
  EXPECT_TRUE(is_a<parallel::CastHook>(hook_of("fp16")));
  EXPECT_TRUE(is_a<parallel::Int8Hook>(hook_of("int8")));
  EXPECT_TRUE(is_a<parallel::PowerSgdHook>(hook_of("powersgd")));
  EXPECT_TRUE(is_a<parallel::TopKHook>(hook_of("topk")));
  EXPECT_TRUE(is_a<parallel::WarmUpHook>(hook_of("topk", 3)));
}

TEST(GradientCompression, EntriesAreOneResidualARankAndWhatAllShare) {
  const auto hook = hook_of("powersgd", 1);
  const auto entries = compression_entries(hook.get(), axes(2, 3));
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name, "compression.warm_up_steps_left");
  EXPECT_EQ(entries[1].name, "compression.error.w");
  EXPECT_EQ(entries[1].layout.shape(), (std::vector<int64_t>{6, 12, 10}));
  EXPECT_EQ(entries[2].name, "compression.q.w");
  EXPECT_EQ(entries[2].layout.shape(), (std::vector<int64_t>{10, 2}));
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(entries[1].layout.local_box(rank).offset, (std::vector<int64_t>{rank, 0, 0}));
    for (const auto& entry : entries) {
      EXPECT_EQ(entry.layout.local_box(rank).size, entry.local.sizes().vec());
    }
  }
  EXPECT_TRUE(compression_entries(nullptr, axes(2, 1)).empty());
}

TEST(GradientCompression, EveryRankGetsItsOwnResidualBack) {
  const harness::TemporaryFolder folder;
  harness::run_ranks(3, [&](comm::Communicator& world) {
    const auto hook = hook_of("topk");
    const auto entries = compression_entries(hook.get(), axes(3, 1));
    for (const auto& entry : entries) entry.local.fill_(world.rank() + 1);
    checkpoint::save(folder.path(), 1, entries, "{}", world);
    const std::filesystem::path path = *checkpoint::latest(folder.path());

    const auto again = hook_of("topk");
    auto wanted = compression_entries(again.get(), axes(1, 3));  // another stage
    const checkpoint::Summary saved = checkpoint::inspect(path);
    ASSERT_TRUE(has_compression_state(saved, wanted, world));
    checkpoint::load(path, wanted, world);
    for (const parallel::HookState& state : again->state()) {
      harness::assert_same_bits(state.tensor, at::full_like(state.tensor, world.rank() + 1),
                                state.name);
    }
    const auto others = compression_entries(hook_of("powersgd").get(), axes(3, 1));
    EXPECT_FALSE(has_compression_state(saved, others, world));
    EXPECT_FALSE(has_compression_state(saved, {}, world));
    EXPECT_FALSE(has_compression_state(saved, compression_entries(again.get(), axes(1, 1)), world));
  });
}

TEST(GradientCompression, ARestartDoesNotWarmUpAgain) {
  TrainConfig train;
  train.compression = parallel::Compression::kTopK;
  train.compression_warmup = 5;
  for (const auto& [step, left] : {std::pair{0, 5}, std::pair{3, 2}, std::pair{9, 0}}) {
    const auto hook = make_gradient_hook(train);
    restart_compression(hook.get(), train, step);
    EXPECT_EQ(hook->state().front().tensor.item<int64_t>(), left);
  }
  restart_compression(nullptr, {}, 3);
  EXPECT_EQ(compression_bytes(nullptr), 0);
}

TEST(GradientCompression, WhatARunWithoutDoesNotWantIsLeftAlone) {
  const harness::TemporaryFolder folder;
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const auto hook = hook_of("topk");
    checkpoint::save(folder.path(), 1, compression_entries(hook.get(), axes(2, 1)), "{}", world);
    const std::filesystem::path path = *checkpoint::latest(folder.path());
    EXPECT_THROW(checkpoint::load(path, {}, world), CheckpointError);
    EXPECT_EQ(checkpoint::load(path, {}, world, {.ignored = {kCompressionPrefix}}), "{}");
    EXPECT_THROW(checkpoint::load(path, {}, world, {.ignored = {"compression.error.w"}}),
                 CheckpointError);
  });
}

}  // namespace
}  // namespace trireme::train
