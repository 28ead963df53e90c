#include "trireme/train/parallel/gradient_compression.h"

#include <map>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/parallel/data/compression/adasum_hook.h"
#include "trireme/parallel/data/compression/feedback_hooks.h"
#include "trireme/parallel/data/compression/narrow_hooks.h"
#include "trireme/parallel/data/compression/sign_hook.h"
#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::train {
namespace {

std::shared_ptr<parallel::GradientHook> prepared(std::shared_ptr<parallel::GradientHook> hook,
                                                 int ranks, int rank) {
  const std::vector<parallel::GradientSpec> gradients = {{"w", {12, 10}, at::kFloat, ranks, rank},
                                                         {"b", {}, at::kFloat, ranks, rank}};
  if (hook) hook->prepare(gradients);
  return hook;
}

std::shared_ptr<parallel::GradientHook> hook_of(const char* rule, int64_t warmup = 0, int ranks = 1,
                                                int rank = 0) {
  RunConfig config;
  config.train.compression = choose(parallel::kCompressions, "rule", rule);
  config.train.compression_rank = 2;
  config.train.compression_warmup = warmup;
  return prepared(make_gradient_hook(config), ranks, rank);
}

std::shared_ptr<parallel::GradientHook> sign_hook(int ranks, int rank) {
  RunConfig config;
  config.optimizer.name = "onebit-adam";
  return prepared(make_gradient_hook(config), ranks, rank);
}

// No other axis splits a parameter.
std::pair<mesh::Layout, int> whole_place(const std::string& parameter) {
  return {
      mesh::Layout(parameter == "w" ? std::vector<int64_t>{12, 10} : std::vector<int64_t>{}, {}),
      0};
}
// Rank `rank` of two has half of the rows of a "w" that is twice as high.
PlaceOf half_place(int rank) {
  return [rank](const std::string& parameter) {
    if (parameter != "w") return whole_place(parameter);
    return std::pair(mesh::Layout({24, 10}, {{"tensor", 2}}, {mesh::Placement::sharded(0)}), rank);
  };
}

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
  EXPECT_TRUE(is_a<parallel::SignHook>(sign_hook(1, 0)));
  RunConfig config;
  config.train.gradient_sum = parallel::GradientSum::kAdasum;
  EXPECT_TRUE(is_a<parallel::AdasumHook>(make_gradient_hook(config)));
}

TEST(GradientCompression, EntriesAreOneResidualARankAndWhatAllShare) {
  for (int rank = 0; rank < 6; ++rank) {
    const auto hook = hook_of("powersgd", 1, 6, rank);
    const auto entries = compression_entries(hook.get(), whole_place);
    ASSERT_EQ(entries.size(), 3u);
    EXPECT_EQ(entries[0].name, "compression.warm_up_steps_left");
    EXPECT_EQ(entries[1].name, "compression.error.w");
    EXPECT_EQ(entries[1].layout.shape(), (std::vector<int64_t>{6, 12, 10}));
    EXPECT_EQ(entries[2].name, "compression.q.w");
    EXPECT_EQ(entries[2].layout.shape(), (std::vector<int64_t>{10, 2}));
    EXPECT_EQ(entries[1].layout.local_box(entries[1].rank).offset,
              (std::vector<int64_t>{rank, 0, 0}));
    for (const auto& entry : entries) {
      EXPECT_EQ(entry.layout.local_box(entry.rank).size, entry.local.sizes().vec());
    }
  }
  EXPECT_TRUE(compression_entries(nullptr, whole_place).empty());
}

TEST(GradientCompression, ResidualsAreLaidOutAsTheirParameters) {
  for (const int part : {0, 1}) {
    const auto hook = sign_hook(3, 2);
    std::map<std::string, checkpoint::Entry> entries;
    for (const auto& entry : compression_entries(hook.get(), half_place(part))) {
      entries.emplace(entry.name, entry);
    }
    ASSERT_EQ(entries.size(), 4u);
    const checkpoint::Entry& error = entries.at("compression.error.w");
    EXPECT_EQ(error.layout.shape(), (std::vector<int64_t>{3, 24, 10}));
    EXPECT_EQ(error.layout.local_box(error.rank).offset, (std::vector<int64_t>{2, 12 * part, 0}));
    // 120 numbers are one block, of rank 0.
    const checkpoint::Entry& server = entries.at(concat("compression.server_error.w@", part));
    EXPECT_EQ(server.layout.shape(), (std::vector<int64_t>{1, 120}));
    EXPECT_EQ(server.local.size(0), 0);
    EXPECT_TRUE(entries.contains("compression.server_error.b"));
  }
}

// Every rank's residual has its rank + 1.
void save_residuals(const std::filesystem::path& folder, comm::Communicator& world) {
  const auto hook = hook_of("topk", 0, world.size(), world.rank());
  const auto entries = compression_entries(hook.get(), whole_place);
  for (const auto& entry : entries) entry.local.fill_(world.rank() + 1);
  checkpoint::save(folder, 1, entries, "{}", world);
}

// What each rank's residual is then.
void expect_residuals(const std::filesystem::path& folder, const std::vector<float>& expected) {
  harness::run_ranks(static_cast<int>(expected.size()), [&](comm::Communicator& world) {
    const std::filesystem::path path = *checkpoint::latest(folder);
    const auto hook = hook_of("topk", 0, world.size(), world.rank());
    CompressionLoad load =
        load_compression(hook.get(), whole_place, checkpoint::inspect(path), world);
    EXPECT_FALSE(load.restarted);
    checkpoint::load(path, load.entries, world);
    load.finish();
    for (const parallel::HookState& state : hook->state()) {
      const float mine = expected[static_cast<size_t>(world.rank())];
      harness::assert_same_bits(state.tensor, at::full_like(state.tensor, mine), state.name);
    }
  });
}

TEST(GradientCompression, EveryRankGetsItsOwnResidualBackOrAShareOfAll) {
  const harness::TemporaryFolder folder;
  harness::run_ranks(3, [&](comm::Communicator& world) { save_residuals(folder.path(), world); });
  expect_residuals(folder.path(), {1, 2, 3});
  expect_residuals(folder.path(), {1 + 2, 3});
  expect_residuals(folder.path(), {1 + 2 + 3});
  expect_residuals(folder.path(), {1, 2, 3, 0, 0});
}

TEST(GradientCompression, AnotherRuleStartsAnew) {
  const harness::TemporaryFolder folder;
  harness::run_ranks(3, [&](comm::Communicator& world) {
    save_residuals(folder.path(), world);
    const checkpoint::Summary saved = checkpoint::inspect(*checkpoint::latest(folder.path()));
    const auto starts_anew = [&](const std::shared_ptr<parallel::GradientHook>& hook) {
      const CompressionLoad load = load_compression(hook.get(), whole_place, saved, world);
      if (load.restarted) EXPECT_TRUE(load.entries.empty());
      return load.restarted;
    };
    EXPECT_FALSE(starts_anew(hook_of("topk", 0, 3, world.rank())));
    EXPECT_TRUE(starts_anew(hook_of("powersgd", 0, 3, world.rank())));
    EXPECT_TRUE(starts_anew(hook_of("topk", 5, 3, world.rank())));
    EXPECT_TRUE(starts_anew(sign_hook(3, world.rank())));
    EXPECT_TRUE(starts_anew(nullptr));
  });
}

// The second stage of a pipeline has no parameter that is trained.
TEST(GradientCompression, ARankWithoutStateDoesNotMakeTheOthersStartAnew) {
  const harness::TemporaryFolder folder;
  harness::run_ranks(2, [&](comm::Communicator& world) {
    RunConfig config;
    config.optimizer.name = "onebit-adam";
    const auto of_stage = [&] {
      return world.rank() == 0 ? sign_hook(1, 0) : make_gradient_hook(config);
    };
    const auto entries_of = [&](const std::shared_ptr<parallel::GradientHook>& hook) {
      return compression_entries(hook.get(), whole_place);
    };
    const auto before = of_stage(), after = of_stage();
    for (const auto& entry : entries_of(before)) entry.local.fill_(7);
    checkpoint::save(folder.path(), 1, entries_of(before), "{}", world);
    const std::filesystem::path path = *checkpoint::latest(folder.path());
    CompressionLoad load =
        load_compression(after.get(), whole_place, checkpoint::inspect(path), world);
    EXPECT_FALSE(load.restarted);
    EXPECT_EQ(load.entries.size(), world.rank() == 0 ? 4u : 0u);
    checkpoint::load(path, load.entries, world);
    load.finish();
    for (const parallel::HookState& state : after->state()) {
      harness::assert_same_bits(state.tensor, at::full_like(state.tensor, 7), state.name);
    }
  });
}

TEST(GradientCompression, ARestartDoesNotWarmUpAgain) {
  RunConfig config;
  config.train.compression = parallel::Compression::kTopK;
  config.train.compression_warmup = 5;
  for (const auto& [step, left] : {std::pair{0, 5}, std::pair{3, 2}, std::pair{9, 0}}) {
    const auto hook = make_gradient_hook(config);
    restart_compression(hook.get(), config.train, step);
    EXPECT_EQ(hook->state().front().tensor.item<int64_t>(), left);
  }
  restart_compression(nullptr, {}, 3);
  EXPECT_EQ(compression_bytes(nullptr), 0);
}

TEST(GradientCompression, WhatARunWithoutDoesNotWantIsLeftAlone) {
  const harness::TemporaryFolder folder;
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const auto hook = hook_of("topk", 0, 2, world.rank());
    checkpoint::save(folder.path(), 1, compression_entries(hook.get(), whole_place), "{}", world);
    const std::filesystem::path path = *checkpoint::latest(folder.path());
    EXPECT_THROW(checkpoint::load(path, {}, world), CheckpointError);
    EXPECT_EQ(checkpoint::load(path, {}, world, {.ignored = {kCompressionPrefix}}), "{}");
    EXPECT_THROW(checkpoint::load(path, {}, world, {.ignored = {"compression.error.w"}}),
                 CheckpointError);
  });
}

}  // namespace
}  // namespace trireme::train
