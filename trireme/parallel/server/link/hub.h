// One process's connections to its peers, served by one thread: it accepts, connects, proves that
// both sides know the run's secret, and passes on frames. It knows nothing of what they mean.
// Strangers cost a bounded number of connections, each of a few hundred bytes for a few seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "trireme/base/sha256.h"
#include "trireme/comm/store/tcp_socket.h"
#include "trireme/parallel/server/link/frame.h"

namespace trireme::parallel::inline internal {

enum class Role : uint32_t { kDirector = 1, kServer, kWorker };

struct HubOptions {
  Role role = Role::kWorker;
  std::string secret = {};  // of the run; empty: every process that reaches the port passes
  std::string config = {};  // both sides must have the same text
  // Limit on the time that an accepted connection takes to identify itself.
  std::chrono::milliseconds patience{5'000};
  // A peer that is silent for this long counts as dead, and so does one that does not answer a new
  // connection. Peers send a beat every second. The time in which this hub's own thread was busy
  // elsewhere, or stopped, does not count.
  std::chrono::milliseconds silence{30'000};
};

using PeerId = uint64_t;  // never used twice

// Called by the hub's thread only. What they throw ends the hub.
class HubEvents {
 public:
  virtual ~HubEvents() = default;
  virtual void on_open(PeerId peer, Role role, uint32_t number) = 0;
  virtual void on_frame(PeerId peer, Frame frame) = 0;
  virtual void on_closed(PeerId peer, const std::string& reason) = 0;
  // About every 20 ms.
  virtual void on_tick() = 0;
  // The hub has ended with what another of these threw; all connections are closed.
  virtual void on_failed(std::exception_ptr error) = 0;
};

struct HubCounts {
  int64_t sent_bytes = 0;  // frames with their headers, without beats
  int64_t received_bytes = 0;
};

class Hub {
 public:
  // `events` must outlive the hub. Starts no thread.
  Hub(HubOptions options, HubEvents& events);
  ~Hub();  // stops
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  // Before start(). Listens on `host` and returns "tcp://HOST:PORT" with the port that it got.
  // Throws: ConfigError when `host` is not an address of this machine
  std::string listen(const std::string& host);
  void start();
  // Sends for at most `patience` what is queued, closes all connections and ends the thread.
  void stop(std::chrono::milliseconds patience = {});

  // Runs `task` in the hub's thread. Any thread; dropped after stop().
  void post(std::function<void()> task);
  HubCounts counts() const;  // any thread
  // "2 connections were refused: ..."; "" when none was. Any thread.
  std::string refusals() const;

  // The rest is for the hub's thread.
  // Connects and introduces itself as `number`. on_open() or on_closed() follows, never within.
  PeerId connect(const std::string& address, uint32_t number);
  // Of the frames that wait for one peer, those of the smallest priority go first, in order. The
  // payload must not change until it is sent.
  void send(PeerId peer, Frame frame, int64_t priority = 0);
  // No on_closed() follows.
  void close(PeerId peer);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace trireme::parallel::inline internal
