// Jobs with stores of their own share no memory, in whatever order their ranks start.
#include "tests/comm/two_jobs.h"

#include <cstdlib>
#include <filesystem>

#include <unistd.h>

#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"

namespace trireme::comm {
namespace {

const std::vector<harness::ExitStatus> kAllFine = {0, 0, 0, 0};

// As a launcher starts rank `process % 2` of two, in a folder of its job's.
WorldInfo launched_in(const std::filesystem::path& folder, int process, const std::string& store) {
  const std::string rank = std::to_string(process % 2);
  for (const char* name : {"RANK", "LOCAL_RANK"}) setenv(name, rank.c_str(), 1);
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) setenv(name, "2", 1);
  for (const char* name : {"TRIREME_LAUNCH", "TORCHELASTIC_RUN_ID", "MASTER_ADDR"}) unsetenv(name);
  setenv("TRIREME_STORE", store.c_str(), 1);
  std::filesystem::current_path(folder);
  return world_info();
}

// `store` is what both jobs are told; each has folders[job] for it.
void expect_two_worlds(const std::vector<std::filesystem::path>& folders,
                       const std::function<std::string(int job)>& store) {
  for (const StartOrder& order : every_start_order()) {
    // One after the other, and all at once.
    for (const int head_start : {10, 0}) {
      Turns turns;
      EXPECT_EQ(harness::fork_processes(
                    4,
                    [&](int process) {
                      const int job = process / 2;
                      const WorldInfo info = launched_in(folders[job], process, store(job));
                      turns.wait(order, process, std::chrono::milliseconds(head_start));
                      expect_own_job(info, job);
                    }),
                kAllFine)
          << "order " << order[0] << order[1] << order[2] << order[3];
    }
  }
}

class TwoJobs : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("TRIREME_JOB");
    for (const std::string name : {"a", "b"}) {
      // Alike in far more letters than a name may have.
      folders_.push_back(folder_.path() / std::string(100, 'x') / name);
      std::filesystem::create_directories(folders_.back());
    }
  }
  void TearDown() override { unsetenv("TRIREME_JOB"); }
  const harness::TemporaryFolder folder_;
  std::vector<std::filesystem::path> folders_;
};

TEST_F(TwoJobs, WithTheSameRelativePathInTwoFoldersNeverMeet) {
  expect_two_worlds(folders_, [](int) { return "file:store"; });
}

TEST_F(TwoJobs, WithPathsThatBeginAlikeNeverMeet) {
  expect_two_worlds(folders_,
                    [&](int job) { return "file:" + (folders_[job] / "store").string(); });
}

TEST_F(TwoJobs, ThatAreCalledTheSameNeverMeet) {
  setenv("TRIREME_JOB", "galley", 1);
  expect_two_worlds(folders_, [](int) { return "file:store"; });
}

}  // namespace
}  // namespace trireme::comm
