#include "tests/harness/ranks.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
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
namespace {

// Whether another thread of this process is on a processor or waits for one.
bool another_thread_runs() {
  const std::string self = std::to_string(gettid());
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == self) continue;
    std::ifstream stat(task.path() / "stat");  // id (name) state ...; nothing: the thread has ended
    std::string text;
    std::getline(stat, text);
    const size_t end_of_name = text.rfind(')');
    if (end_of_name != std::string::npos && text.compare(end_of_name, 3, ") S") != 0) return true;
  }
  return false;
}

// A child has copies of the locks that the parent's threads hold at that moment, and nobody to
// release them. The allocator of GCC 12's address sanitizer has such locks. A thread that sleeps
// holds none, so this waits for the others to come to rest, but not for ever.
void wait_for_rest() {
  for (int i = 0; i < 1000 && another_thread_runs(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

void run_ranks(int size, const RankFunction& function, const comm::GroupOptions& options) {
  comm::run_thread_group(size, function, options);
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
    wait_for_rest();
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
