#include "trireme/train/offload/disk_store.h"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/train/offload/stores.h"
#include "trireme/base/error.h"
#include "trireme/train/offload/state_store.h"

namespace trireme::train {
namespace {

// Over io_uring where this machine has it, and over threads.
class EveryDiskStore : public ::testing::TestWithParam<bool> {
 protected:
  OffloadOptions options() const {
    return {.place = OffloadPlace::kDisk, .folder = folder_.path(), .use_uring = GetParam()};
  }
  void expect_same(DiskStore& actual, MemoryStore& expected, const StatePlan& plan) {
    const auto a = contents(actual, plan), b = contents(expected, plan);
    for (size_t i = 0; i < a.size(); ++i) {
      harness::assert_same_bits(a[i], b[i], concat("tensor ", i));
    }
  }
  const harness::TemporaryFolder folder_;
};

TEST_P(EveryDiskStore, HoldsWhatMemoryHolds) {
  for (const int extra : {0, 1, 2, 5}) {
    const StatePlan plan = make_plan(extra);
    DiskStore disk(options(), plan);
    MemoryStore memory(plan, at::kCPU);
    expect_same(disk, memory, plan);  // zero
    const std::vector<size_t> all = all_chunks(plan);
    // Orders in which a chunk is asked for while its last write is still on its way.
    const std::vector<size_t> backwards(all.rbegin(), all.rend());
    for (const auto& order : std::vector<std::vector<size_t>>{
             all, all, backwards, all, {2}, {2}, {1}, {}, {0, 2}, {2, 0}, all}) {
      change(disk, order);
      change(memory, order);
    }
    expect_same(disk, memory, plan);
    change(disk, all);  // after a checkpoint
    change(memory, all);
    expect_same(disk, memory, plan);
  }
}

TEST_P(EveryDiskStore, IsFilledByACheckpoint) {
  const StatePlan plan = make_plan(2);
  DiskStore disk(options(), plan);
  MemoryStore memory(plan, at::kCPU);
  change(disk, all_chunks(plan));
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const checkpoint::Entry from = describe(memory, plan, i);
    const checkpoint::Entry to = describe(disk, plan, i);
    from.local.copy_(
        at::arange(from.local.numel(), from.local.options()).view(plan.tensors[i].shape));
    EXPECT_TRUE(to.local.is_meta());
    EXPECT_EQ(to.local.sizes(), from.local.sizes());
    EXPECT_EQ(to.local.scalar_type(), from.local.scalar_type());
    to.offloaded->write(from.local);
  }
  expect_same(disk, memory, plan);
  change(disk, all_chunks(plan));
  change(memory, all_chunks(plan));
  expect_same(disk, memory, plan);
}

TEST_P(EveryDiskStore, HasThreeBuffersOfTheLargestChunkWhateverTheNumberOfChunks) {
  for (const int extra : {0, 40}) {
    const DiskStore store(options(), make_plan(extra));
    EXPECT_EQ(store.buffer_bytes(), 3 * (8192 + 4096));
    EXPECT_EQ(store.file_bytes(), 8192 + 4096 + 4096 + 4096 + 12288 + extra * 4096);
  }
}

TEST_P(EveryDiskStore, LeavesNothingInTheFolder) {
  const StatePlan plan = make_plan();
  DiskStore store(options(), plan);
  change(store, all_chunks(plan));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_P(EveryDiskStore, AnErrorOfTheVisitLeavesTheStoreUsable) {
  const StatePlan plan = make_plan(3);
  DiskStore store(options(), plan);
  const auto fail = [](size_t chunk, std::span<const at::Tensor>) {
    if (chunk == 2) throw InternalError("chunk 2");
  };
  EXPECT_THROW(store.visit(all_chunks(plan), fail), InternalError);
  change(store, all_chunks(plan));
}

TEST_P(EveryDiskStore, AWriteThatFailsEndsAVisitWithItsReason) {
  const auto exits = harness::fork_processes(1, [this](int) {
    const StatePlan plan = make_plan(6);
    DiskStore store(options(), plan);
    change(store, all_chunks(plan));
    store.flush();
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{16384, 16384};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    std::string message;
    try {
      change(store, all_chunks(plan));
    } catch (const Error& error) {
      message = error.what();
    }
    for (const std::string part : {"cannot write", folder_.path().c_str(), "at byte 16384",
                                   "File too large", "the last checkpoint is intact"}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  });
  EXPECT_EQ(exits, std::vector<harness::ExitStatus>{0});
}

TEST_P(EveryDiskStore, ATailThatFailsIsReportedByTheNextUse) {
  const auto exits = harness::fork_processes(1, [this](int) {
    const StatePlan plan = make_plan();
    DiskStore store(options(), plan);
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    const std::vector<size_t> last = {2};
    change(store, last);  // returns before its write
    EXPECT_THROW(store.read(1), Error);
  });
  EXPECT_EQ(exits, std::vector<harness::ExitStatus>{0});
}

INSTANTIATE_TEST_SUITE_P(Io, EveryDiskStore, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "uring" : "threads"; });

TEST(DiskStore, MayHoldNothing) {
  const harness::TemporaryFolder folder;
  DiskStore store({.place = OffloadPlace::kDisk, .folder = folder.path()},
                  {.tensors = {}, .chunks = {{}, {}}});
  int visits = 0;
  const std::vector<size_t> both = {0, 1};
  store.visit(both, [&](size_t, std::span<const at::Tensor> pieces) {
    EXPECT_TRUE(pieces.empty());
    ++visits;
  });
  EXPECT_EQ(visits, 2);
}

}  // namespace
}  // namespace trireme::train
