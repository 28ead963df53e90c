// One process's connections to its peers, served by one thread. The hub accepts and opens
// connections, proves that both sides know the run's secret, and delivers frames without knowing
// their meaning. Strangers can hold only a bounded number of connections, each of a few hundred
// bytes and for a few seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "trireme/base/sha256.h"
#include "trireme/comm/net/tcp_socket.h"
#include "trireme/parallel/server/link/frame.h"

namespace trireme::parallel {

enum class Role : uint32_t { kDirector = 1, kServer, kWorker };

struct HubOptions {
  Role role = Role::kWorker;
  std::string secret = {};  // of the run; empty: any process that reaches the port may connect
  std::string config = {};  // must be equal on both sides
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
  // Called about every 20 ms.
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
  // Sends queued frames for up to `patience`, closes all connections and ends the thread.
  void stop(std::chrono::milliseconds patience = {});

  // Runs `task` in the hub's thread. Any thread; ignored after stop().
  void post(std::function<void()> task);
  HubCounts counts() const;  // any thread
  // "2 connections were refused: ..."; "" if there were none. Any thread.
  std::string refusals() const;

  // The functions below are for the hub's thread only.
  // Connects and introduces itself as `number`. Later calls on_open() or on_closed(), never before
  // it returns.
  PeerId connect(const std::string& address, uint32_t number);
  // Frames that wait for one peer are sent in ascending order of `priority`, and in the order of
  // the calls within one priority. The payload must not change until it is sent.
  void send(PeerId peer, Frame frame, int64_t priority = 0);
  // Does not call on_closed().
  void close(PeerId peer);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace trireme::parallel
