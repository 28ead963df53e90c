#include "trireme/checkpoint/write/saver.h"

#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved_tensors.h"
#include "tests/checkpoint/slow_disk.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<Global> model(int ranks, uint64_t seed) {
  std::vector<Global> globals;
  for (int i = 0; i < 5; ++i) {
    const std::string name = "w" + std::to_string(i);
    const at::Tensor tensor = random_tensor(name, {97 + i, 300}, at::kInt, seed);
    const auto placement = i % 2 == 0 ? mesh::Placement::sharded(0) : mesh::Placement::replicated();
    globals.push_back({name, tensor, {tensor.sizes().vec(), {{"data", ranks}}, {placement}}});
  }
  return globals;
}

std::optional<Saved> poll(Saver& saver) {
  for (;;) {
    if (auto saved = saver.finish(/*waits=*/false)) return saved;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(Saver, ABackgroundSaveHasTheValuesOfItsBeginning) {
  for (const int ranks : {1, 2, 3}) {
    const harness::TemporaryFolder root;
    for (const int64_t step : {1, 2}) {
      const std::vector<Global> globals = model(ranks, step);
      harness::run_ranks(ranks, [&](comm::Communicator& world) {
        Saver saver(world);
        for (const bool waits : {false, true}) {
          std::vector<Entry> entries = parts(globals, world.rank());
          saver.start(root.path(), step, entries, R"({"seed":1})", kFast);
          EXPECT_TRUE(saver.is_busy());
          for (Entry& entry : entries) entry.local.fill_(-1);  // training goes on
          const auto saved = waits ? saver.finish(true) : poll(saver);
          ASSERT_TRUE(saved.has_value());
          EXPECT_EQ(saved->step, step);
          EXPECT_EQ(saved->folder, root / folder_name(step));
          EXPECT_GT(saved->stall.count(), 0);
          EXPECT_GE(saved->took, saved->stall);
          EXPECT_FALSE(saver.is_busy());
          EXPECT_FALSE(saver.finish(true).has_value());
        }
      });
      expect_loads(root / folder_name(step), globals, ranks);
    }
  }
}

TEST(Saver, InTheForegroundItIsThatOfSave) {
  const harness::TemporaryFolder root;
  const std::vector<Global> globals = model(2, 1);
  harness::run_ranks(2, [&](comm::Communicator& world) {
    Saver saver(world, {.in_background = false});
    saver.start(root.path(), 1, parts(globals, world.rank()), R"({"seed":1})", kFast);
    const auto saved = saver.finish(false);
    ASSERT_TRUE(saved.has_value());
    EXPECT_EQ(saved->stall, saved->took);
  });
  expect_loads(root / "step-000001", globals, 2);
}

TEST(Saver, AnErrorReachesEveryRankAndTheNextSaveWorks) {
  const harness::TemporaryFolder root;
  const std::vector<Global> globals = model(3, 1);
  overwrite(root / "file", "in the way");
  for (const bool in_background : {false, true}) {
    harness::run_ranks(3, [&](comm::Communicator& world) {
      Saver saver(world, {.in_background = in_background});
      const auto entries = parts(globals, world.rank());
      saver.start(root / "file", 1, entries, R"({"seed":1})", kFast);
      std::string message;
      try {
        saver.finish(true);
      } catch (const Error& error) {
        message = error.what();
      }
      EXPECT_THAT(message, HasSubstr((root / "file").string())) << world.rank();
      saver.start(root / "good", 1, entries, R"({"seed":1})", kFast);
      EXPECT_TRUE(saver.finish(true).has_value());
    });
    expect_loads(root / "good" / "step-000001", globals, 3);
  }
}

// The run ends with an exception while a disk is slow: no rank waits for it, and the checkpoint
// before stays the newest.
// In the background the caller hears of it at the end, and can tell it from a disk's error.
TEST(Saver, WhatMustNotBeSavedIsRefusedAtTheEnd) {
  const harness::TemporaryFolder root;
  overwrite(root / "file", "");
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const mesh::Layout layout({3}, {{"data", 2}});
    for (const bool in_background : {false, true}) {
      Saver saver(world, {.in_background = in_background});
      const auto error_of = [&](const fs::path& folder, const at::Tensor& tensor) {
        std::vector<Entry> entries{{"w", tensor.clone(), layout}};
        SaveOptions options = kFast;
        options.allow_nonfinite = false;
        saver.start(folder, 1, entries, "{}", options);
        return harness::message_of<Error>([&] { saver.finish(/*waits=*/true); });
      };
      const at::Tensor ones = at::ones({3});
      EXPECT_THAT(error_of(root / "a", ones * (world.rank() + 1)), HasSubstr("replicas differ"));
      EXPECT_TRUE(saver.was_refused());
      EXPECT_THAT(error_of(root / "a", ones / 0), HasSubstr("NaN or infinite"));
      EXPECT_TRUE(saver.was_refused());
      EXPECT_FALSE(fs::exists(root / "a"));
      EXPECT_THAT(error_of(root / "file" / "a", ones), HasSubstr("file"));
      EXPECT_FALSE(saver.was_refused());
    }
  });
}

TEST(Saver, GivenUpItLeavesTheCheckpointBefore) {
  const harness::TemporaryFolder root;
  const std::vector<Global> globals = model(2, 1);
  save_all(root.path(), 1, globals, 2);
  harness::run_ranks(2, [&](comm::Communicator& world) {
    Saver saver(world);
    saver.start(root.path(), 2, parts(globals, world.rank()), R"({"seed":1})", kFast);
  });
  const auto folders = list(root.path());
  ASSERT_FALSE(folders.empty());
  EXPECT_EQ(folders.front(), root / "step-000001");
  for (const fs::path& folder : folders) EXPECT_THAT(verify(folder).problems, IsEmpty());
  save_all(root.path(), 3, globals, 2);
  expect_loads(root / "step-000003", globals, 2);
}

// Offloaded tensors are read while the caller waits, however slow that is.
TEST(Saver, OffloadedTensorsAreCopiedFirst) {
  const harness::TemporaryFolder root;
  harness::run_ranks(2, [&](comm::Communicator& world) {
    Saver saver(world);
    int num_reads = 0;
    const auto entries = entries_of(world, [&] { ++num_reads; });
    saver.start(root.path(), 1, entries, "{}", kFast);
    const int before = num_reads;
    EXPECT_EQ(before, 2);
    EXPECT_TRUE(saver.finish(true).has_value());
    EXPECT_EQ(num_reads, before);
  });
  check_saved(root.path());
}

}  // namespace
}  // namespace trireme::checkpoint
