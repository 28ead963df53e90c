// Ranks succeed together or fail together, and wait for each other's disks: what keeps one rank's
// full disk from hanging the others, and one rank's slow disk from looking like a lost peer.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

// Told about every second which ranks are still at work and for how long all have waited for them,
// once it has been a few seconds. On a thread of the agreement's own, while the caller works.
using OnWait = std::function<void(std::span<const int> ranks, std::chrono::milliseconds waited)>;

// Given to long work.
class Peers {
 public:
  virtual ~Peers() = default;
  // To be called now and then: returns at once.
  // Throws: CommError when a peer was lost meanwhile, which makes further work pointless
  virtual void check() const = 0;
};

// Runs `produce` here, on the calling thread, and gives every rank's result to every rank. When it
// throws anywhere, all ranks throw what the first failing rank threw, of the same type:
// ConfigError, CheckpointError or Error; an exception of another library is an InternalError. The
// message names the rank, unless all failed alike.
//
// However long a rank works, the others wait for it: meanwhile each rank says several times a
// second that it is there. So a peer that dies is noticed as in every collective, one whose process
// or host no longer runs after the group's timeout, and a disk that only is slow never is a lost
// peer. A rank whose disk never answers is waited for without end, which `on_wait` makes visible.
// `produce` must not communicate over `world`.
// Comm:       8 bytes a rank, again while ranks work: at first every 50 ms, then four times a
//             second; then one all-gather of the strings
// Collective: every rank of `world`
// Throws:     as said; CommError when a peer is lost (also out of `produce`, the peers of which
//             fail too)
std::vector<std::string> gather_or_throw(comm::Communicator& world,
                                         const std::function<std::string(const Peers&)>& produce,
                                         const OnWait& on_wait = {});

// The same for work that has no result.
void run_or_throw(comm::Communicator& world, const std::function<void(const Peers&)>& work,
                  const OnWait& on_wait = {});

// Runs `produce` on rank 0 and gives its result to every rank; otherwise as gather_or_throw(), but
// that no message names rank 0: nobody chose it.
std::string from_root(comm::Communicator& world,
                      const std::function<std::string(const Peers&)>& produce,
                      const OnWait& on_wait = {});

}  // namespace trireme::checkpoint
