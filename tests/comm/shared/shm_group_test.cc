#include "trireme/comm/shared/shm_group.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/comm/errors.h"
#include "tests/comm/scalar_model.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/comm/shared/segment.h"

namespace trireme::comm {
namespace {

using harness::ExitStatus;
using harness::fork_ranks;
using std::chrono::milliseconds;

GroupOptions with_timeout(milliseconds timeout) {
  GroupOptions options;
  options.timeout = timeout;
  return options;
}

// What a rank saw, for the test's own process: ranks cannot report failed expectations themselves.
void write(const std::filesystem::path& path, const void* data, size_t num_bytes) {
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(data), static_cast<std::streamsize>(num_bytes));
}
void write(const std::filesystem::path& path, const std::string& text) {
  write(path, text.data(), text.size());
}
std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Rank r's error while it does `function`, in folder/r.
harness::RankFunction recording(const harness::TemporaryFolder& folder,
                                harness::RankFunction function) {
  return [&folder, function = std::move(function)](Communicator& group) {
    try {
      function(group);
    } catch (const CommError& error) {
      write(folder / std::to_string(group.rank()), error.what());
    }
  };
}

// Some of everything; all results of a rank in one row of bytes.
std::string results_of(Communicator& group) {
  std::string bytes;
  const auto keep = [&](const at::Tensor& tensor) {
    bytes.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  };
  for (const int64_t count : {0, 1, 4099, 300001}) {
    at::Tensor data = values_of(group.rank(), {count}, at::kFloat);
    group.all_reduce(data)->wait();
    keep(data);
    std::vector<at::Tensor> inputs, outputs;
    for (int r = 0; r < group.size(); ++r) {
      inputs.push_back(values_of(group.rank() + 7 * r, {count / (r + 1)}, at::kBFloat16));
      outputs.push_back(at::zeros({count / (group.rank() + 1)}, at::kBFloat16));
    }
    at::Tensor sum = at::zeros_like(outputs[0]);
    group.reduce_scatter(sum, inputs)->wait();
    keep(sum);
    group.all_to_all(outputs, inputs)->wait();
    for (const at::Tensor& output : outputs) keep(output);
  }
  auto pair = group.split(group.rank() / 2, -group.rank(), "pair");
  at::Tensor data = values_of(group.rank(), {1000}, at::kFloat);
  pair->all_reduce(data)->wait();
  keep(data);
  return bytes;
}

int count_segments(const std::string& part) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    count += contains(entry.path().filename().string(), part) ? 1 : 0;
  }
  return count;
}

TEST(ShmGroup, GivesTheBitsOfAThreadGroup) {
  for (const int size : {1, 2, 3, 4}) {
    const harness::TemporaryFolder folder;
    const auto statuses = fork_ranks(size, [&](Communicator& group) {
      write(folder / std::to_string(group.rank()), results_of(group));
    });
    EXPECT_EQ(statuses, std::vector<ExitStatus>(size, 0));
    harness::run_ranks(size, [&](Communicator& group) {
      EXPECT_EQ(read(folder / std::to_string(group.rank())), results_of(group));
    });
  }
}

TEST(ShmGroup, RanksNeedNotAgreeOnZeroCopy) {
  const std::string job = harness::unique_job();
  const auto statuses = harness::fork_processes(3, [&](int rank) {
    GroupOptions options;
    options.zero_copy = rank == 1;
    const auto group = make_shm_group(job, rank, 3, options);
    at::Tensor data = group->symmetric_empty({50000}, at::kFloat).fill_(rank);
    group->all_reduce(data)->wait();
    EXPECT_TRUE(data.eq(3).all().item<bool>());
    data.fill_(rank);
    const WorkPtr send = group->send(data, (rank + 1) % 3, {.background = true});
    at::Tensor got = group->symmetric_empty({50000}, at::kFloat);
    group->recv(got, (rank + 2) % 3)->wait();
    send->wait();
    EXPECT_TRUE(got.eq((rank + 2) % 3).all().item<bool>());
  });
  EXPECT_EQ(statuses, std::vector<ExitStatus>(3, 0));
}

TEST(ShmGroup, RankKilledInTheMiddleIsNamedLongBeforeTheTimeout) {
  const harness::TemporaryFolder folder;
  const auto statuses = fork_ranks(4,
                                   recording(folder,
                                             [](Communicator& group) {
                                               at::Tensor data = at::ones({500000});
                                               for (int i = 0;; ++i) {
                                                 if (group.rank() == 2 && i == 3) raise(SIGKILL);
                                                 group.all_reduce(data)->wait();
                                               }
                                             }),
                                   with_timeout(std::chrono::seconds(60)));
  EXPECT_EQ(statuses, (std::vector<ExitStatus>{0, 0, -SIGKILL, 0}));
  for (const char* rank : {"0", "1", "3"}) {
    const std::string error = read(folder / rank);
    EXPECT_PRED2(contains, error, "rank 2 died");  // and not "timed out"
    EXPECT_PRED2(contains, error, "all_reduce #5 of group world (4 ranks)");
  }
}

TEST(ShmGroup, KilledSenderFailsItsReceiver) {
  const harness::TemporaryFolder folder;
  fork_ranks(2,
             recording(folder,
                       [](Communicator& group) {
                         if (group.rank() == 0) raise(SIGKILL);
                         at::Tensor data = at::ones({5});
                         group.recv(data, 0)->wait();
                       }),
             with_timeout(std::chrono::seconds(60)));
  EXPECT_PRED2(contains, read(folder / "1"), "rank 0 died");
}

TEST(ShmGroup, RankKilledInsideASplitFailsTheOthers) {
  const harness::TemporaryFolder folder;
  fork_ranks(3,
             recording(folder,
                       [](Communicator& group) {
                         if (group.rank() < 2) {
                           group.split(0, 0, "crew");
                           return;
                         }
                         // The first half of split(): tells its color, and dies before the new
                         // group.
                         std::vector<at::Tensor> all(3);
                         for (at::Tensor& other : all) other = at::zeros({2}, at::kLong);
                         group.all_gather(all, at::zeros({2}, at::kLong))->wait();
                         raise(SIGKILL);
                       }),
             with_timeout(std::chrono::seconds(60)));
  EXPECT_PRED2(contains, read(folder / "0"), "rank 2 died");
  EXPECT_PRED2(contains, read(folder / "1"), "rank 2 died");
}

TEST(ShmGroup, StoppedRankIsNamedByTheTimeout) {
  const harness::TemporaryFolder folder;
  const auto pid_file = folder / "pid";
  fork_ranks(3,
             recording(folder,
                       [&](Communicator& group) {
                         if (group.rank() == 1) {
                           write(folder / "pid", std::to_string(getpid()));
                           group.barrier()->wait();
                           raise(SIGSTOP);
                           return;
                         }
                         group.barrier()->wait();
                         try {
                           group.barrier()->wait();
                         } catch (const CommError&) {
                           if (group.rank() == 0) kill(std::stoi(read(pid_file)), SIGKILL);
                           throw;
                         }
                       }),
             with_timeout(milliseconds(500)));
  EXPECT_PRED2(contains, read(folder / "0"), "timed out after 0.5 s waiting for rank 1");
  EXPECT_PRED2(contains, read(folder / "2"), "waiting for rank 1");
}

TEST(ShmGroup, LeavesNoFileBehindWhateverHappens) {
  const std::string mine = concat("trireme-test-", getpid(), "-");
  const auto statuses = fork_ranks(3, [&](Communicator& group) {
    auto pair = group.split(group.rank() / 2, 0, "pair");
    group.barrier()->wait();  // rank 0 has sealed the pair too
    if (count_segments(mine) != 0) throw CommError("a joined group has a file");
    if (group.rank() == 1) raise(SIGKILL);
    group.split(0, 0, "crew");
  });
  EXPECT_EQ(statuses, (std::vector<ExitStatus>{1, -SIGKILL, 1}));
  EXPECT_EQ(count_segments(mine), 0);
}

TEST(ShmGroup, NameInUseIsAConfigError) {
  const std::string job = harness::unique_job();
  const auto segment = make_shm_segments()->create(job, 0, {4096});  // another job is joining
  EXPECT_ERROR(ConfigError, make_shm_group(job, 0, 2), "is in use by another job");
}

TEST(ShmGroup, RankThatNeverComesIsNamedAndTheNameIsFreeAgain) {
  const std::string job = harness::unique_job();
  EXPECT_ERROR(CommError, make_shm_group(job, 0, 2, with_timeout(milliseconds(60))),
               "rank 1, which never joined");
  EXPECT_ERROR(CommError, make_shm_group(job, 1, 2, with_timeout(milliseconds(60))),
               "rank 0 of 2 never came within 0.06 s");
  EXPECT_EQ(make_shm_group(job, 0, 1)->size(), 1);
}

TEST(ShmGroup, MalformedJobNamesAndRanksAreConfigErrors) {
  for (const std::string job : {"", "a/b", "a b", "../x"}) {
    EXPECT_ERROR(ConfigError, make_shm_group(job, 0, 1), "job name \"" + job + "\"");
  }
  EXPECT_ERROR(ConfigError, make_shm_group(std::string(101, 'a'), 0, 1), "1 to 100");
  EXPECT_ERROR(ConfigError, make_shm_group("a", 2, 2), "rank 2 of 2 ranks");
}

}  // namespace
}  // namespace trireme::comm
