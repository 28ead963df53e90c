// Makes ranks succeed or fail together, and wait for each other's disks. One rank's full disk does
// not hang the others, and one rank's slow disk does not look like a lost peer.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

// After a few seconds of waiting, called about every second with the ranks still at work and the
// time all have waited for them. Runs on the agreement's own thread while the caller works.
using OnWait = std::function<void(std::span<const int> ranks, std::chrono::milliseconds waited)>;

// Passed to long work.
class Peers {
 public:
  virtual ~Peers() = default;
  // Call it now and then. Returns at once.
  // Throws: CommError when a peer was lost, which makes further work pointless
  virtual void check() const = 0;
};

// Runs `produce` in the calling thread and gives every rank's result to every rank. If it throws on
// any rank, all ranks throw the error of the first failing rank, with the same type: ConfigError,
// CheckpointError or Error; another library's exception becomes an InternalError. The message names
// the rank, unless all failed in the same way.
//
// However long a rank works, the others wait for it. Meanwhile each rank reports several times a
// second that it is alive. A peer that dies is noticed as in every collective, and one whose
// process or host no longer runs is noticed after the group's timeout. A disk that is merely slow
// never counts as a lost peer. A rank whose disk never answers is waited for forever; `on_wait`
// makes that visible. `produce` must not communicate over `world`.
// Comm:       8 bytes per rank, repeated while ranks work: every 50 ms at first, then four times a
//             second; then one all-gather of the strings
// Collective: every rank of `world`
// Throws:     as above; CommError when a peer is lost or `produce` throws one; the peers then fail
//             too
std::vector<std::string> gather_or_throw(comm::Communicator& world,
                                         const std::function<std::string(const Peers&)>& produce,
                                         const OnWait& on_wait = {});

// The same for work without a result.
void run_or_throw(comm::Communicator& world, const std::function<void(const Peers&)>& work,
                  const OnWait& on_wait = {});

// Runs `produce` on rank 0 and gives its result to every rank. Otherwise as gather_or_throw(), but
// messages do not name rank 0, because nobody chose it.
std::string from_root(comm::Communicator& world,
                      const std::function<std::string(const Peers&)>& produce,
                      const OnWait& on_wait = {});

}  // namespace trireme::checkpoint
