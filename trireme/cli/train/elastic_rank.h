// A rank under an elastic agent (`trireme run`): survives the loss of its peers in the same
// process, or ends the process when it does not get out of its groups in time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "trireme/comm/rendezvous/rendezvous_variables.h"
#include "trireme/train/config/config.h"
#include "trireme/train/profile/profiler.h"

namespace trireme::cli {

// Destructors of ours do not wait without bound, but a disk, a connection to a host that is gone,
// or a long computation may hold a rank. Then its process ends with exit code 3 and a line that
// says so, and the agent starts it again. Lives as long as the rank's groups.
class LeaveLimit {
 public:
  LeaveLimit();
  // The rank is out.
  ~LeaveLimit();
  LeaveLimit(const LeaveLimit&) = delete;
  LeaveLimit& operator=(const LeaveLimit&) = delete;

  // Gives the rank `patience` to leave, from now on. Only the first call counts. Thread safe.
  void begin(std::chrono::nanoseconds patience);

 private:
  void watch();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  bool has_left_ = false;
  std::thread thread_;  // last: uses all of the above
};

struct ElasticRun {
  std::function<train::RunConfig()> load_config;  // called anew for each epoch
  train::ProfileOptions profile{};                // of the first epoch
  // The first epoch, and this process's part in it. Nothing: waits for the agent to name one.
  std::optional<comm::WorldInfo> first{};
  int64_t first_epoch = 1;
};

// Trains as a worker of the agent behind the descriptor `agent_fd` (launch/link). When a peer is
// lost or the agent says so, gives up all groups, tells the agent, waits for the next epoch, and
// goes on from the newest checkpoint. Ends like a rank without an agent when the run ends, is
// stopped, or fails for another reason. A rank that cannot give up its groups in time ends its
// process with exit code 3.
// Returns the exit code.
// Throws: as Trainer; CommError when the agent is gone
int run_elastic_rank(const ElasticRun& run, int agent_fd);

}  // namespace trireme::cli
