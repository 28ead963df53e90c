// A worker's thread that talks to the director and the servers: tracks the view, sends requests to
// heads and tails, and sends them again when a chain changes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/parallel/server/link/hub.h"
#include "trireme/parallel/server/server_client.h"
#include "trireme/parallel/server/view.h"

namespace trireme::parallel {

// A worker's unanswered requests, and which of them must be sent again when a chain changes. Uses
// no sockets.

struct Outstanding {
  Frame frame;
  // Copies or notes the answer. Called once.
  std::function<void(const Frame& answer)> on_answer;
  uint32_t sent_in = 0;  // the first view with the chain that it was sent to; 0: not sent
};

class OutstandingRequests {
 public:
  void add(Outstanding request);
  // Removes and returns the request that `answer` answers; empty if there is none, or if it was
  // answered before.
  std::optional<Outstanding> take(const Frame& answer);

  // Notes which chains have changed.
  void install(const View& view);

  // Calls `send` for each request that was not sent to its present chain. Returns how many of them
  // had been sent to an earlier one.
  // reaches: whether the head and the tail of the shard's chain are connected
  int64_t send_due(const std::function<bool(uint32_t shard)>& reaches,
                   const std::function<void(const Frame& frame)>& send);

 private:
  // kind, part, shard, piece, incarnation (events) or tensor (states), step
  using Key = std::tuple<FrameKind, uint16_t, uint32_t, uint32_t, uint32_t, int64_t>;
  static Key key_of(const FrameHeader& header);

  std::map<Key, Outstanding> requests_;
  std::set<Key> due_;  // not sent, or sent to an earlier chain
  std::vector<std::vector<uint32_t>> chains_;
  std::vector<uint32_t> since_;  // for each shard, the first view with its present chain
};

class WorkerLink final : private HubEvents {
 public:
  WorkerLink(const ServerRun& run, const ServerClientOptions& options);
  ~WorkerLink() override;

  // Sends the requests. Calls each one's on_answer in the link's thread, under mutex().
  void ask(std::vector<Outstanding> requests);
  // Waits until is_done() returns true; calls it under mutex().
  // Throws: CommError, ConfigError; the message begins with `what`
  void wait(const std::string& what, const std::function<bool()>& is_done);
  void say_goodbye();

  std::mutex& mutex() { return mutex_; }
  uint32_t incarnation() const { return incarnation_; }  // once wait() for has_view() is over
  bool has_view() const { return view_.number > 0; }     // under mutex()
  HubCounts counts() const { return hub_.counts(); }
  int64_t resent() const;

 private:
  struct Link {
    PeerId peer = 0;
    bool is_open = false;
  };

  void on_open(PeerId peer, Role role, uint32_t number) override;
  void on_frame(PeerId peer, Frame frame) override;
  void on_closed(PeerId peer, const std::string& reason) override;
  void on_tick() override {}
  void on_failed(std::exception_ptr error) override;

  void on_director(const Frame& frame);
  void on_view(View view);
  void fail(const std::string& problem, bool is_refusal);
  void send_due();
  std::string chain_text() const;

  const ServerRun run_;
  const ServerClientOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable condition_;
  std::string problem_;      // "": none
  bool is_refusal_ = false;  // of one of this worker's requests
  uint32_t incarnation_ = 0;
  View view_;  // written by the hub's thread, under the mutex
  int64_t resent_ = 0;
  // Used only by the hub's thread.
  PeerId director_ = 0;
  std::map<uint32_t, Link> links_;
  OutstandingRequests requests_;
  Hub hub_;
};

}  // namespace trireme::parallel
