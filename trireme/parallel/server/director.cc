#include "trireme/parallel/server/director.h"

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/parallel/server/link/hub.h"
#include "trireme/parallel/server/run_identity.h"
#include "trireme/parallel/server/view.h"

namespace trireme::parallel {

// One thread, the hub's, owns all state but counts_. A member is what a connection has said of
// itself; a view is what all members act by, and it is published whole after each change. The
// director never asks whether somebody lives. A closed connection is the loss of its owner, and
// suspicion of a server by others closes its connection: a server that is alive behind a broken
// link then stops by itself, so two servers never act for one shard. Nothing is decided before
// enough members have come, so that the first view has all of them.

class Director::Impl final : public HubEvents {
 public:
  Impl(const ServerRun& run, const DirectorOptions& options)
      : run_(run),
        workers_(options.workers),
        views_(run.shards, run.copies),
        started_(std::chrono::steady_clock::now()),
        next_server_(static_cast<uint32_t>(run.shards)),
        hub_(hub_options(run, Role::kDirector), *this) {
    TRIREME_CHECK(workers_ >= 1 && workers_ <= kMaxWorkers, workers_, " workers; expected 1 to ",
                  kMaxWorkers);
    address_ = hub_.listen(options.host);
    hub_.start();
  }
  ~Impl() override { hub_.stop(); }

  const std::string& address() const { return address_; }

  DirectorCounts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

  void end(const std::string& problem) {
    hub_.post([this, problem] { end_run(problem); });
    hub_.stop(std::chrono::seconds(5));
  }

  void on_open(PeerId peer, Role role, uint32_t number) override {
    members_[peer] = {.role = role, .id = number};
  }

  void on_frame(PeerId peer, Frame frame) override {
    Member& member = members_.at(peer);
    switch (frame.header.kind) {
      case FrameKind::kRegister: return enter(peer, member, frame);
      case FrameKind::kSuspect:
        // Only members may suspect, and not the director of another run.
        if (member.role == Role::kServer || member.role == Role::kWorker) {
          lose_server(frame.header.piece);
        }
        return;
      case FrameKind::kFilled:
        if (member.role != Role::kServer || !member.is_registered) break;
        views_.set_filled(frame.header.shard, member.id);
        return publish();
      case FrameKind::kGoodbye: member.said_goodbye = true; return;
      default: break;
    }
    drop(peer);
  }

  void on_closed(PeerId peer, const std::string& reason) override {
    const auto found = members_.find(peer);
    if (found == members_.end()) return;
    const Member member = found->second;
    members_.erase(found);
    // One that never took part is no loss.
    if (!member.is_registered || is_over_) return;
    if (member.role == Role::kServer) return lose(member.id);
    if (!member.said_goodbye) ++lost_workers_;
    views_.remove_worker(member.id);
    waiting_workers_.erase(member.id);
    publish();
  }

  void on_tick() override {
    // Only the first view may be late.
    if (views_.view().number > 0 || is_over_) return;
    if (std::chrono::steady_clock::now() < started_ + run_.timeout) return;
    end_run(concat("after ", in_seconds(run_.timeout), " s only ", waiting_servers_.size(), " of ",
                   run_.shards, " servers and ", waiting_workers_.size(), " of ", workers_,
                   " workers have registered"));
  }

  void on_failed(std::exception_ptr) override {}  // members see a lost director

 private:
  struct Member {
    Role role = Role::kWorker;
    uint32_t id = 0;
    bool is_registered = false;
    bool said_goodbye = false;
  };

  void drop(PeerId peer) {
    hub_.close(peer);
    on_closed(peer, "");
  }

  void enter(PeerId peer, Member& member, const Frame& frame) {
    if (member.is_registered || member.role == Role::kDirector || is_over_) return;
    const bool is_server = member.role == Role::kServer;
    const std::string address = text_of(frame.payload);
    const bool fits = is_server ? is_address(address) : member.id < kMaxWorkers;
    // A server's address goes into every view: one that is no address would make each member refuse
    // it.
    if (!fits) return drop(peer);
    is_server ? enter_server(member, address) : enter_worker(member);
    member.is_registered = true;
    Frame answer;
    answer.header = {.kind = FrameKind::kRegister,
                     .incarnation = is_server ? 0 : incarnations_[member.id],
                     .piece = member.id};
    hub_.send(peer, std::move(answer));
    const bool are_here =
        std::ssize(waiting_servers_) >= run_.shards && std::ssize(waiting_workers_) >= workers_;
    if (views_.view().number == 0 && are_here) {
      views_.start(std::exchange(waiting_servers_, {}), std::exchange(waiting_workers_, {}));
    }
    publish();
  }

  void enter_server(Member& member, const std::string& address) {
    // At the start a server gets the number that it asks for, and with it the shard of its share.
    const bool may_choose = views_.view().number == 0 && member.id < run_.shards &&
                            !waiting_servers_.contains(member.id);
    if (!may_choose) member.id = next_server_++;
    if (views_.view().number > 0) {
      views_.add_server(member.id, address);
    } else {
      waiting_servers_[member.id] = address;
    }
  }

  void enter_worker(const Member& member) {
    // A worker that starts again replaces its older process, which is dead or cut off.
    for (auto& [peer, other] : members_) {
      if (other.role == Role::kWorker && other.id == member.id) other.is_registered = false;
    }
    // A number that grows tells its requests from those of the process before.
    const uint32_t incarnation = ++incarnations_[member.id];
    if (views_.view().number > 0) {
      views_.add_worker(member.id, incarnation);
    } else {
      waiting_workers_[member.id] = incarnation;
    }
  }

  // The server may be alive behind a broken link. It stops when this closes its connection.
  void lose_server(uint32_t id) {
    for (const auto& [peer, member] : members_) {
      if (member.role != Role::kServer || !member.is_registered || member.id != id) continue;
      return drop(peer);
    }
  }

  void lose(uint32_t id) {
    ++lost_servers_;
    waiting_servers_.erase(id);
    views_.remove_server(id);
    if (!views_.lost().empty()) return end_run(views_.lost());
    publish();
  }

  void publish() {
    const View& view = views_.view();
    {
      const std::lock_guard lock(mutex_);
      const bool is_started = view.number > 0;
      counts_ = {.view = view.number,
                 .servers = std::ssize(is_started ? view.servers : waiting_servers_),
                 .workers = std::ssize(is_started ? view.workers : waiting_workers_),
                 .servers_lost = lost_servers_,
                 .workers_lost = lost_workers_,
                 .is_whole = views_.is_whole()};
    }
    if (view.number == 0) return;
    // The text is made once, and all frames share its memory.
    const at::Tensor text = bytes_of(to_text(view));
    for (auto& [peer, member] : members_) {
      if (!member.is_registered) continue;
      Frame frame{{.kind = FrameKind::kView, .view = view.number}, text};
      hub_.send(peer, std::move(frame));
    }
  }

  void end_run(const std::string& problem) {
    if (std::exchange(is_over_, true)) return;
    for (const auto& [peer, member] : members_) {
      Frame frame{{.kind = FrameKind::kEnd}, bytes_of(problem)};
      hub_.send(peer, std::move(frame));
    }
  }

  const ServerRun run_;
  const int64_t workers_;
  std::string address_;
  mutable std::mutex mutex_;
  DirectorCounts counts_;
  // Used only by the hub's thread.
  ViewMaker views_;
  const std::chrono::steady_clock::time_point started_;
  std::map<PeerId, Member> members_;
  std::map<uint32_t, std::string> waiting_servers_;
  std::map<uint32_t, uint32_t> waiting_workers_;
  std::map<uint32_t, uint32_t> incarnations_;
  uint32_t next_server_;  // number of the next spare; the first servers have those below
  int64_t lost_servers_ = 0;
  int64_t lost_workers_ = 0;
  bool is_over_ = false;
  Hub hub_;
};

Director::Director(const ServerRun& run, const DirectorOptions& options)
    : impl_(std::make_unique<Impl>(run, options)) {}
Director::~Director() = default;
const std::string& Director::address() const { return impl_->address(); }
DirectorCounts Director::counts() const { return impl_->counts(); }
void Director::end(const std::string& problem) { impl_->end(problem); }

}  // namespace trireme::parallel
