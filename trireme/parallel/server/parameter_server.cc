#include "trireme/parallel/server/parameter_server.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/parallel/server/link/hub.h"
#include "trireme/parallel/server/replica.h"
#include "trireme/parallel/server/run_identity.h"

namespace trireme::parallel {

// A server is a hub, and for each shard a Replica that decides; this class only knows who is who.
// All of it runs in the hub's thread. Frames carry the view in which they were sent. A frame of a
// view that is not here yet waits (early_), since acting on it by the old view would send it along
// a dead chain. Frames of an older view need no check here: a replica compares peers and numbers. A
// peer that misbehaves is refused, a failure of this server ends it: an update rule that throws has
// left an event counted and not applied, and going on would make the copies differ.

namespace {

// Limit on frames that wait for a view. Views are late by a moment at most.
// A peer that runs ahead for ever is broken.
constexpr size_t kMaxEarlyFrames = 100'000;

}  // namespace

class ParameterServer::Impl final : public HubEvents, public ReplicaPort {
 public:
  Impl(const ServerRun& run, MakePiece make, const ParameterServerOptions& options)
      : run_(run),
        make_(std::move(make)),
        options_(options),
        hub_(hub_options(run, Role::kServer), *this) {
    // A log is the order of one copy.
    TRIREME_CHECK(options.replay.empty() || run.copies == 1, "a replay with ", run.copies,
                  " copies of each shard; set parallel.server_copies to 1");
    if (!options.replay.empty()) replay_.emplace(options.replay, identity_of(run));
    if (!options.log.empty()) log_.emplace(options.log, identity_of(run));
    // Before peers connect, because they take a server that does not answer for dead.
    for (uint32_t shard = 0; shard < run.shards; ++shard) {
      if (has_at_start(run, options.number, shard)) made_[shard] = make_state(shard);
    }
    address_ = hub_.listen(options.host);
    hub_.start();
    hub_.post([this] { director_ = hub_.connect(options_.director, options_.number); });
  }
  ~Impl() override { hub_.stop(); }

  bool wait_for(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    const bool is_over = condition_.wait_for(lock, limit, [&] { return is_over_; });
    // In its own type: a launcher restarts lost peers and not full disks.
    if (failure_) std::rethrow_exception(failure_);
    if (!problem_.empty()) throw CommError(problem_);
    return is_over;
  }

  ServerCounts counts() const {
    const HubCounts bytes = hub_.counts();
    const std::lock_guard lock(mutex_);
    ServerCounts counts = counts_;
    counts.sent_bytes = bytes.sent_bytes;
    counts.received_bytes = bytes.received_bytes;
    return counts;
  }

  // Whoever opens a connection introduces itself; this side knows whom it has called.
  void on_open(PeerId peer, Role role, uint32_t number) override {
    if (peer == director_) {
      Frame frame{{.kind = FrameKind::kRegister}, bytes_of(address_)};
      return hub_.send(peer, std::move(frame));
    }
    for (auto& [id, link] : links_) {
      if (link.peer != peer) continue;
      link.is_open = true;
      return attach_successors();
    }
    peers_[peer] = {role, number};
    if (role == Role::kWorker) workers_[number] = peer;
  }

  void on_frame(PeerId peer, Frame frame) override {
    if (peer == director_) return on_director(frame);
    if (frame.header.view > view_.number) {
      // Bounds memory, see above.
      if (early_.size() >= kMaxEarlyFrames) return hub_.close(peer);
      early_.push_back({peer, std::move(frame)});
      return;
    }
    dispatch(peer, std::move(frame));
  }

  void on_closed(PeerId peer, const std::string& reason) override {
    if (peer == director_) {
      return finish(concat("server ", id_, ": lost the director at ", options_.director,
                           ", or was removed by it: ", reason));
    }
    // The director decides whether the successor is lost.
    for (const auto& [id, link] : links_) {
      if (link.peer != peer) continue;
      Frame suspect;
      suspect.header = {.kind = FrameKind::kSuspect, .piece = id};
      links_.erase(id);
      return hub_.send(director_, std::move(suspect));
    }
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return;
    // A worker may have come again with a newer connection.
    const auto worker = workers_.find(found->second.number);
    if (worker != workers_.end() && worker->second == peer) workers_.erase(worker);
    peers_.erase(found);
  }

  void on_tick() override {
    // In the tick and not for each event: a log is for replay, not for recovery.
    if (log_) log_->flush();
    const auto now = std::chrono::steady_clock::now();
    for (auto& [shard, replica] : replicas_) replica.on_tick(now);
  }

  void on_failed(std::exception_ptr error) override {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_over_, true)) return;
    failure_ = std::move(error);
    condition_.notify_all();
  }

 private:
  struct Peer {
    Role role = Role::kWorker;
    uint32_t number = 0;
  };
  struct Link {  // to a successor
    PeerId peer = 0;
    bool is_open = false;
  };

  void finish(const std::string& problem) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_over_, true)) return;
    problem_ = problem;
    condition_.notify_all();
  }

  void on_director(const Frame& frame) {
    if (frame.header.kind == FrameKind::kRegister) id_ = frame.header.piece;
    if (frame.header.kind == FrameKind::kView) install(parse_view(text_of(frame.payload)));
    if (frame.header.kind == FrameKind::kEnd) {
      if (log_) log_->flush();
      finish(text_of(frame.payload));
    }
  }

  void install(View view) {
    TRIREME_CHECK(std::ssize(view.chains) == run_.shards, "a view has ", view.chains.size(),
                  " shards; expected ", run_.shards);
    view_ = std::move(view);
    for (uint32_t shard = 0; shard < view_.chains.size(); ++shard) {
      const std::vector<uint32_t>& chain = view_.chains[shard];
      const bool is_mine = std::ranges::find(chain, id_) != chain.end();
      if (!is_mine) continue;
      if (!replicas_.contains(shard)) add_replica(shard);
      replicas_.at(shard).take_place(view_, id_);
    }
    // Shards that this server does not have after all.
    made_.clear();
    attach_successors();
    for (Request& early : std::exchange(early_, {})) {
      on_frame(early.peer, std::move(early.frame));
    }
  }

  std::unique_ptr<ShardState> make_state(uint32_t shard) const {
    return std::make_unique<ShardState>(run_.pieces, shard, run_.consistency, make_);
  }

  void add_replica(uint32_t shard) {
    auto made = made_.extract(shard);
    auto state = made.empty() ? make_state(shard) : std::move(made.mapped());
    ReplayOrder* const replay = replay_ ? &*replay_ : nullptr;
    const auto [added, is_new] =
        replicas_.try_emplace(shard, std::move(state), int64_t{shard}, *this, replay);
    // Only at the start all copies begin alike. Later ones get a snapshot.
    if (view_.number == 1) added->second.start(view_.workers);
  }

  void attach_successors() {
    for (auto& [shard, replica] : replicas_) {
      if (!replica.needs_successor()) continue;
      const uint32_t id = *replica.successor();
      const auto address = view_.servers.find(id);
      if (address == view_.servers.end()) continue;
      if (!links_.contains(id)) links_[id].peer = hub_.connect(address->second, id_);
      const Link& link = links_.at(id);
      if (link.is_open) replica.connect_successor(link.peer, view_.number, id_);
    }
  }

  void dispatch(PeerId peer, Frame frame) {
    const auto found = replicas_.find(frame.header.shard);
    // It will be sent again, in a view that is newer.
    if (found == replicas_.end()) return;  // of a view that is over
    Replica& replica = found->second;
    const auto known = peers_.find(peer);
    if (known == peers_.end() || known->second.role != Role::kWorker) {
      return from_server(replica, peer, std::move(frame));
    }
    const int64_t sequence = replica.sequence();
    try {
      from_worker(replica, peer, known->second.number, std::move(frame));
    } catch (const ConfigError& error) {
      if (replica.sequence() != sequence) throw;  // the event counts, and was not applied whole
      Frame refused{{.kind = FrameKind::kRefused}, bytes_of(std::string_view(error.what()))};
      hub_.send(peer, std::move(refused));
    }
  }

  void from_worker(Replica& replica, PeerId peer, uint32_t number, Frame frame) {
    TRIREME_CHECK(frame.header.worker == number, "worker ", number,
                  " sent a request in the name of worker ", frame.header.worker);
    switch (frame.header.kind) {
      case FrameKind::kEvent:
        TRIREME_CHECK(frame.header.part != static_cast<uint16_t>(EventKind::kLeave) &&
                          frame.header.part != static_cast<uint16_t>(EventKind::kClose),
                      "a worker sent event ", frame.header.part,
                      ", which only servers decide; expected a goodbye to the director to leave");
        return replica.on_event(peer, std::move(frame));
      case FrameKind::kPull: return replica.on_pull(peer, std::move(frame));
      case FrameKind::kPullState: return replica.on_pull_state(peer, std::move(frame));
      default:
        throw ConfigError(concat("a worker sent \"", name_of(frame.header.kind),
                                 "\"; expected an event or a pull"));
    }
  }

  void from_server(Replica& replica, PeerId peer, Frame frame) {
    switch (frame.header.kind) {
      case FrameKind::kEvent: return replica.on_forwarded(peer, std::move(frame));
      case FrameKind::kConfirm: return replica.on_confirm(peer, std::move(frame));
      case FrameKind::kAttach: return replica.on_attach(peer, frame);
      case FrameKind::kHave: return replica.on_have(peer, frame);
      case FrameKind::kEventDone: return replica.on_event_done(peer, frame);
      case FrameKind::kSnapshot: return replica.on_snapshot(peer, frame);
      default: hub_.close(peer); return on_closed(peer, "");
    }
  }

  void send(PeerId peer, Frame frame, int64_t priority) override {
    hub_.send(peer, std::move(frame), priority);
  }
  void send_to_worker(uint32_t worker, Frame frame) override {
    const auto peer = workers_.find(worker);
    if (peer != workers_.end()) hub_.send(peer->second, std::move(frame));
  }
  void tell_director(Frame frame) override { hub_.send(director_, std::move(frame)); }
  void log(const LogRecord& record) override {
    if (log_) log_->append(record);
    if (record.kind == LogKind::kPull) return;
    const std::lock_guard lock(mutex_);
    ++counts_.events;
  }
  void count_staleness(int64_t steps) override {
    const std::lock_guard lock(mutex_);
    ++counts_.staleness[steps];
  }

  const ServerRun run_;
  const MakePiece make_;
  const ParameterServerOptions options_;
  std::string address_;
  mutable std::mutex mutex_;
  std::condition_variable condition_;
  bool is_over_ = false;
  std::string problem_;         // of the run, or with the director
  std::exception_ptr failure_;  // of this server
  ServerCounts counts_;
  // Used only by the hub's thread.
  std::optional<ReplayOrder> replay_;
  std::optional<ServerLog> log_;
  PeerId director_ = 0;
  uint32_t id_ = 0;
  View view_;
  std::map<uint32_t, std::unique_ptr<ShardState>> made_;  // until the first view, by shard
  std::map<uint32_t, Replica> replicas_;                  // by shard
  std::map<PeerId, Peer> peers_;                          // that opened a connection
  std::map<uint32_t, PeerId> workers_;                    // number -> newest connection
  std::map<uint32_t, Link> links_;                        // server -> the link to it
  std::deque<Request> early_;
  Hub hub_;
};

ParameterServer::ParameterServer(const ServerRun& run, MakePiece make,
                                 const ParameterServerOptions& options)
    : impl_(std::make_unique<Impl>(run, std::move(make), options)) {}
ParameterServer::~ParameterServer() = default;
bool ParameterServer::wait_for(std::chrono::milliseconds limit) { return impl_->wait_for(limit); }
void ParameterServer::wait() {
  while (!wait_for(std::chrono::hours(1))) {
  }
}
ServerCounts ParameterServer::counts() const { return impl_->counts(); }

}  // namespace trireme::parallel
