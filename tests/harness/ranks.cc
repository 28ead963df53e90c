#include "tests/harness/ranks.h"

#include <atomic>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/comm/shared/shm_group.h"
#include "trireme/comm/shared/thread_group.h"

namespace trireme::harness {

void run_ranks(int size, const RankFunction& function, const comm::GroupOptions& options) {
  auto groups = comm::make_thread_group(size, options);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (auto& group : groups) {
    threads.emplace_back([&] {
      try {
        function(*group);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        group.reset();  // the peers learn that this rank has left
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

std::vector<ExitStatus> fork_ranks(int size, const RankFunction& function,
                                   const comm::GroupOptions& options) {
  const std::string job = unique_job();
  return fork_processes(
      size, [&](int rank) { function(*comm::make_shm_group(job, rank, size, options)); });
}

std::vector<ExitStatus> fork_processes(int size, const std::function<void(int rank)>& function) {
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      int status = 0;
      try {
        at::set_num_threads(1);
        function(rank);
        if (testing::Test::HasFailure()) status = 1;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        status = 1;
      }
      std::fflush(nullptr);
      _exit(status);
    }
    children.push_back(child);
  }
  std::vector<ExitStatus> statuses;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
  return statuses;
}

std::string unique_job() {
  static std::atomic<int> counter = 0;
  return concat("test-", getpid(), "-", counter++);
}

}  // namespace trireme::harness
