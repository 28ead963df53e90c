// A world of processes that keep their flight recorders in a folder.
#pragma once

#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/comm/shared/shm_group.h"

namespace trireme::comm {

// Runs `function` on `size` ranks; what it throws ends its rank. None is left behind.
class RecordedRanks {
 public:
  // A rank's work, with its group and its recorder.
  using Function = std::function<void(Communicator& world, Recorder& recorder)>;

  RecordedRanks(int size, const std::filesystem::path& folder,
                const harness::RankFunction& function)
      : RecordedRanks(size, folder, [&](Communicator& world, Recorder&) { function(world); }) {}
  RecordedRanks(int size, const std::filesystem::path& folder, const Function& function)
      : children_(size) {
    const std::string job = harness::unique_job();
    for (int rank = 0; rank < size; ++rank) {
      children_[rank] = fork();
      if (children_[rank] == 0) run({folder, rank, size, job}, function);
    }
  }
  ~RecordedRanks() {
    for (const pid_t child : children_) kill(child, SIGKILL);
    join();
  }
  RecordedRanks(const RecordedRanks&) = delete;
  RecordedRanks& operator=(const RecordedRanks&) = delete;

  int size() const { return static_cast<int>(children_.size()); }
  pid_t id(int rank) const { return children_[rank]; }
  void signal(int rank, int number) const { kill(children_[rank], number); }
  // Until all have ended.
  void join() {
    for (const pid_t child : children_) waitpid(child, nullptr, 0);
    children_.clear();
  }

 private:
  [[noreturn]] static void run(const RecorderOptions& options, const Function& function) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      const auto recorder = std::make_shared<Recorder>(options);
      const auto world =
          make_shm_group(options.job, options.rank, options.world_size, {.recorder = recorder});
      function(*world, *recorder);
    } catch (const Error&) {
    }
    _exit(0);
  }

  std::vector<pid_t> children_;
};

}  // namespace trireme::comm
