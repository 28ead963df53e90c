// One server's copy of a shard, as a link of the shard's chain. The head numbers the events of
// workers, every link applies them and passes them on, and the tail acknowledges them and answers
// pulls. So every copy has what was acknowledged.
// Source: van Renesse & Schneider 2004, "Chain replication for supporting high throughput and
//         availability", OSDI
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/parallel/server/link/hub.h"
#include "trireme/parallel/server/log/server_log.h"
#include "trireme/parallel/server/state/shard_state.h"
#include "trireme/parallel/server/view.h"

namespace trireme::parallel {

// Holds back workers' requests until their turn in a log.

struct Request {
  PeerId peer = 0;
  Frame frame;
};

class ReplayOrder {
 public:
  // Throws: as read_server_log()
  ReplayOrder(const std::filesystem::path& path, const std::string& config);

  // The next record of the log; null at its end.
  const LogRecord* next() const;
  void add(LogKind kind, Request request);
  // Returns the request that next() describes and moves on to the next record; empty while the
  // request has not come.
  std::optional<Request> take();
  // Moves on from a record without a request: a worker's departure, or the end of a grace.
  void skip() { ++at_; }
  // At the end of the log: a request that is not in it.
  std::optional<Request> take_surplus();

  // "server-log/from-0-server-0: event 17 of 2031", for errors.
  std::string place() const;

 private:
  using Key = std::tuple<LogKind, uint32_t, uint32_t, int64_t>;  // worker, piece, step

  std::string path_;
  ReadLog log_;
  size_t at_ = 0;
  std::map<Key, std::deque<Request>> arrived_;
};

// A replica's interface to its surroundings.
class ReplicaPort {
 public:
  virtual ~ReplicaPort() = default;
  virtual void send(PeerId peer, Frame frame, int64_t priority) = 0;
  // Sends on the worker's newest connection; drops the message if there is none.
  virtual void send_to_worker(uint32_t worker, Frame frame) = 0;
  virtual void tell_director(Frame frame) = 0;
  virtual void log(const LogRecord& record) = 0;
  virtual void count_staleness(int64_t steps) = 0;
};

class Replica {
 public:
  // replay: may be null
  Replica(std::unique_ptr<ShardState> state, int64_t shard, ReplicaPort& port, ReplayOrder* replay);

  // For the first view: this copy is complete, and these are the workers.
  void start(const std::map<uint32_t, uint32_t>& workers);
  // Takes its place in the view's chain. If needs_successor() then, connect_successor() must
  // follow.
  void take_place(const View& view, uint32_t id);
  int64_t sequence() const { return state_->sequence(); }  // of the last event
  std::optional<uint32_t> successor() const { return successor_; }
  bool needs_successor() const { return successor_.has_value() && successor_peer_ == 0; }
  void connect_successor(PeerId peer, uint32_t view, uint32_t own_id);

  // Frames of workers.
  // Throws: ConfigError if no worker sends such a frame
  void on_event(PeerId peer, Frame frame);
  void on_pull(PeerId peer, Frame frame);
  void on_pull_state(PeerId peer, Frame frame);
  // Frames of neighbours.
  void on_forwarded(PeerId peer, Frame frame);
  void on_attach(PeerId peer, const Frame& frame);
  void on_have(PeerId peer, const Frame& frame);
  void on_event_done(PeerId peer, const Frame& frame);
  void on_confirm(PeerId peer, Frame frame);
  void on_snapshot(PeerId peer, const Frame& frame);
  // Ends rounds whose grace is over. A round's grace begins at the first call that finds its quorum
  // complete.
  void on_tick(std::chrono::steady_clock::time_point now);

 private:
  bool is_head() const { return !predecessor_; }
  bool is_tail() const { return !successor_; }
  bool takes_part(const FrameHeader& event) const;
  void commit(Frame event);
  void acknowledge(const Frame& event);
  void confirm(Frame event);
  void flush_confirms();
  void done_up_to(int64_t sequence);
  void remove_departed(const std::map<uint32_t, uint32_t>& workers);
  void answer_waiting(uint32_t piece);
  void answer_all_waiting();
  void answer(PeerId peer, const Frame& pull);
  void replay();
  void replay_one(const LogRecord& record, Request request);
  void refuse(PeerId peer, Refusal kind, const std::string& reason);
  LogRecord record_of(LogKind kind, const FrameHeader& header, int64_t number) const;

  const std::unique_ptr<ShardState> state_;
  const int64_t shard_;
  ReplicaPort& port_;
  ReplayOrder* const replay_;
  bool is_whole_ = false;
  std::vector<uint32_t> chain_;
  std::map<uint32_t, uint32_t> workers_;  // of the view: number -> incarnation
  std::optional<uint32_t> predecessor_;
  std::optional<uint32_t> successor_;
  PeerId predecessor_peer_ = 0;  // 0: not attached
  PeerId successor_peer_ = 0;
  bool is_successor_ready_ = false;                 // it has said which events it has
  int64_t done_ = 0;                                // the tail has all events up to this one
  std::deque<Frame> window_;                        // events that the tail may lack
  std::vector<Frame> confirms_;                     // for a successor that is not ready
  std::map<uint32_t, std::vector<Request>> pulls_;  // of each piece, not answerable yet
  std::vector<Request> state_pulls_;                // that came before this copy was complete
  // Piece -> its version, and when the grace of the round from there ends.
  std::map<uint32_t, std::pair<int64_t, std::chrono::steady_clock::time_point>> graces_;
};

}  // namespace trireme::parallel
