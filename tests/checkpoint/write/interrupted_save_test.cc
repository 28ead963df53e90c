// A process that is killed while it saves: whatever the instant, the newest checkpoint is whole.
#include <chrono>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/checkpoint/saved.h"
#include "tests/checkpoint/table_run.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/publish.h"

namespace trireme::checkpoint {
namespace {

constexpr int kSavingRanks = 2;
constexpr int64_t kLength = 32 << 10;

// The content tells the step.
at::Tensor content(int64_t step, int tensor, int64_t epoch = 1) {
  return at::empty({kLength}).fill_(static_cast<double>(10 * step + tensor) +
                                    static_cast<double>(epoch) / 1024);
}

void save_step(const std::filesystem::path& root, int64_t step, int64_t epoch = 1) {
  harness::run_ranks(kSavingRanks, [&](comm::Communicator& world) {
    const mesh::Layout sharded({kLength}, {{"data", kSavingRanks}}, {mesh::Placement::sharded(0)});
    std::vector<Entry> entries;
    for (int i = 0; i < 3; ++i)
      entries.push_back(
          part_of("w" + std::to_string(i), content(step, i, epoch), sharded, world.rank()));
    save(root, step, entries, std::to_string(step), world, {.keep = 2, .epoch = epoch});
  });
}

// Saves step after step, and some steps twice, until it is killed.
[[noreturn]] void save_forever(const std::filesystem::path& root, int64_t step) {
  try {
    for (;; ++step) {
      save_step(root, step);
      if (step % 2 == 0) save_step(root, step);
    }
  } catch (...) {
  }
  _exit(1);
}

int64_t newest_step(const std::filesystem::path& root) { return inspect(*latest(root)).step; }

// How long a new process takes for three saves, on this machine at this moment.
std::chrono::microseconds time_of_three_saves(const std::filesystem::path& root) {
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) save_forever(root, 1);
  while (newest_step(root) < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const auto passed = std::chrono::steady_clock::now() - start;
  return std::chrono::duration_cast<std::chrono::microseconds>(passed);
}

TEST(InterruptedSave, AKillAtAnyInstantLeavesAWholeCheckpoint) {
  const harness::TemporaryFolder root;
  save_step(root.path(), 0);
  const RandomKey key = random_key(1, "instants");
  const auto window = static_cast<double>(time_of_three_saves(root.path()).count());
  const int64_t first = newest_step(root.path());
  int64_t newest = first;
  for (int round = 0; round < 25; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_forever(root.path(), newest + 1);
    std::this_thread::sleep_for(
        std::chrono::microseconds(static_cast<int64_t>(random_uniform(key, round) * window)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself";

    const auto folder = latest(root.path());
    ASSERT_TRUE(folder.has_value());
    const int64_t step = inspect(*folder).step;
    ASSERT_GE(step, newest);
    newest = step;
    for (const auto& each : list(root.path())) ASSERT_TRUE(verify(each).problems.empty());
    const auto tensors = load_global(*folder);
    for (int i = 0; i < 3; ++i)
      harness::assert_same_bits(tensors.at("w" + std::to_string(i)), content(step, i), "w");
  }
  EXPECT_GT(newest, first) << "no round lived long enough to save";
  // The next save cleans up after all of them.
  save_step(root.path(), newest + 1);
  for (const auto& item : std::filesystem::directory_iterator(root.path()))
    EXPECT_EQ(item.path().filename().string().front(), 's') << item.path();
}

// Saves step after step, whatever happens to a save.
[[noreturn]] void save_whatever_happens(const std::filesystem::path& root, int64_t step,
                                        int64_t epoch) {
  for (;; ++step) {
    try {
      save_step(root, step, epoch);
    } catch (const std::exception&) {  // its folder was removed
    }
  }
}

// It was stopped before any of its writes, and goes on when the next epoch has begun. The ranks of
// the child are a whole group, which is the worst case: they save without those that are gone.
TEST(InterruptedSave, AWriterThatWasStoppedAtAnyInstantLeavesTheNextEpochsCheckpoints) {
  const harness::TemporaryFolder root;
  save_step(root.path(), 0);
  const auto window = static_cast<double>(time_of_three_saves(root.path()).count());
  const RandomKey key = random_key(2, "instants");
  int64_t step = newest_step(root.path()), num_instants_in_a_save = 0;
  for (int64_t epoch = 1; epoch <= 15; ++epoch) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_whatever_happens(root.path(), step + 1, epoch);
    std::this_thread::sleep_for(
        std::chrono::microseconds(static_cast<int64_t>(random_uniform(key, epoch) * window)));
    kill(child, SIGSTOP);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status)) << "the child failed by itself";

    const int64_t next = epoch + 1;
    for (const auto& item : std::filesystem::directory_iterator(root.path()))
      num_instants_in_a_save += item.path().filename().string().front() == '.' ? 1 : 0;
    remove_leftovers(root.path(), next);
    step = newest_step(root.path()) + 1;
    save_step(root.path(), step, next);
    kill(child, SIGCONT);
    for (int i = 0; i < 3; ++i) save_step(root.path(), ++step, next);  // both write now
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, &status, 0), child);

    ASSERT_EQ(*latest(root.path()), root.path() / folder_name(step, next));
    const auto folders = list(root.path());
    ASSERT_EQ(folders[folders.size() - 2], root.path() / folder_name(step - 1, next));
    for (const int64_t each : {step - 1, step}) {
      const auto folder = root.path() / folder_name(each, next);
      ASSERT_TRUE(verify(folder).problems.empty());
      const auto tensors = load_global(folder);
      for (int i = 0; i < 3; ++i)
        harness::assert_same_bits(tensors.at("w" + std::to_string(i)), content(each, i, next), "w");
    }
  }
  EXPECT_GT(num_instants_in_a_save, 0);
}

// The rows that have changed at each step are a function of it.
void change(TableRun& run, int64_t step) {
  run.touch(TableRun::some_rows(200, 70'000, static_cast<uint64_t>(step)), step);
}

// A table of which each step changes some rows, from `first` on.
[[noreturn]] void save_rows_forever(const std::filesystem::path& root, int64_t first) {
  try {
    harness::run_ranks(1, [&](comm::Communicator& world) {
      TableRun run(1, 0, mesh::Placement::sharded(0));
      for (int64_t step = 1; step < first; ++step) change(run, step);
      run.forget();
      Saver saver(world);
      for (int64_t step = first;; ++step) {
        change(run, step);
        save_now(saver, root, step, run, {.keep = 2, .fsync = false});
      }
    });
  } catch (...) {
  }
  _exit(1);
}

TEST(InterruptedSave, AKillWhileChangedRowsAreSavedLeavesAWholeCheckpoint) {
  const harness::TemporaryFolder root;
  int64_t newest = 0, num_patched = 0;
  for (int round = 0; round < 8; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_rows_forever(root.path(), newest + 1);
    // At some instant of one of the saves after the second.
    while (!latest(root.path()) || newest_step(root.path()) < newest + 2 + round % 3)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::microseconds(700 * round));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself";
    newest = newest_step(root.path());
    TableRun run(1, 0, mesh::Placement::sharded(0));
    for (int64_t step = 1; step <= newest; ++step) change(run, step);
    num_patched += num_patches(*latest(root.path()));
    expect_loads(*latest(root.path()), run.globals_at(2, mesh::Placement::sharded(1)), 2);
    for (const auto& each : list(root.path())) ASSERT_TRUE(verify(each).problems.empty());
  }
  EXPECT_GT(num_patched, 0);
}

}  // namespace
}  // namespace trireme::checkpoint
