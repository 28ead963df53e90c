#include "trireme/parallel/server/link/hub.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/comm/net/tcp_socket.h"
#include "trireme/parallel/server/link/connection.h"

namespace trireme::parallel {

// One thread does everything, so that callers need no lock: frames are delivered, connections
// opened and ticks made in it, and other threads only post tasks. Sockets never block, and each
// peer has its turn. Three sets say who needs attention: dirty_ may have something to send,
// writing_ waits for room in its socket, strangers_ has not said who it is. A connection may be
// closed by the very callback that it is delivering to; then the object must stay until receive()
// returns, which in_receive_ and closes_after_ are for. A peer is lost by silence, counted only
// while this thread itself was running: after a long computation or a pause of the process the
// frames that were missed are still in the kernel.

namespace {

using HubClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kHubTick{20};
// Well below every patience.
constexpr std::chrono::milliseconds kBeatInterval{1000};
// A connect blocks this thread, so it must be short.
constexpr std::chrono::milliseconds kReachPatience{2000};
// Bounds what strangers can hold.
constexpr size_t kMaxStrangers = 128;

}  // namespace

class Hub::Loop {
 public:
  Loop(HubOptions options, HubEvents& events)
      : options_(std::move(options)),
        events_(events),
        refusals_(nullptr),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!epoll_.is_open() || !wake_.is_open()) {
      throw Error(concat("cannot serve parameters: ", std::strerror(errno)));
    }
    watch(wake_.get(), 0, EPOLLIN, EPOLL_CTL_ADD);
  }
  ~Loop() { stop({}); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  std::string listen(const std::string& host) {
    comm::TcpAddress address{host, 0};
    std::vector<comm::Endpoint> endpoints = comm::resolve(address);
    endpoints.resize(1);  // a second address would get another port
    listeners_ = comm::listen_on(endpoints, address);
    comm::Endpoint bound;
    bound.length = sizeof(bound.address);
    getsockname(listeners_.front().get(), reinterpret_cast<sockaddr*>(&bound.address),
                &bound.length);
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(bound.address);  // the port's place is
    const bool is_v6 = bound.address.ss_family == AF_INET6;                // the same in both
    watch(listeners_.front().get(), kListener, EPOLLIN, EPOLL_CTL_ADD);
    return concat("tcp://", is_v6 ? "[" : "", bound.to_string(), is_v6 ? "]" : "", ":",
                  ntohs(v4.sin_port));
  }

  void start() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);  // signals are for the program's own threads
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void stop(std::chrono::milliseconds patience) {
    if (!thread_.joinable()) return;
    stop_by_ = (HubClock::now() + patience).time_since_epoch().count();
    is_ending_ = true;
    wake();
    thread_.join();
  }

  void post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake();
  }

  HubCounts counts() const { return {sent_bytes_.load(), received_bytes_.load()}; }
  std::string refusals() const { return refusals_.to_string(); }

  PeerId connect(const std::string& text, uint32_t number) {
    const PeerId id = next_id_++;
    std::string problem = "it does not resolve";
    Descriptor socket;
    try {
      socket = comm::connect_to(comm::resolve(comm::parse_tcp_address(text)),
                                HubClock::now() + kReachPatience, problem);
    } catch (const ConfigError& error) {
      problem = error.what();
    }
    if (!socket.is_open()) {
      // Told in the next turn: connect() must not call back before it returns.
      unreached_.emplace_back(id, problem);
      return id;
    }
    add(id, std::move(socket), /*accepted=*/false, text, number);
    return id;
  }

  void send(PeerId peer, Frame frame, int64_t priority) {
    const auto found = connections_.find(peer);
    if (found == connections_.end()) return;
    frame.header.payload_bytes =
        frame.payload.defined() ? static_cast<uint32_t>(frame.payload.numel()) : 0;
    found->second.queue(std::move(frame), priority);
    dirty_.insert(peer);
  }

  void close(PeerId peer) {
    if (peer == in_receive_) {  // its frames are being passed on; receive() closes it then
      closes_after_ = true;
      connections_.at(peer).shut();
      return;
    }
    connections_.erase(peer);
    strangers_.erase(peer);
    dirty_.erase(peer);
    writing_.erase(peer);
  }

 private:
  static constexpr PeerId kListener = 1;

  void wake() {
    const uint64_t one = 1;
    static_cast<void>(!write(wake_.get(), &one, sizeof(one)));
  }

  void watch(int fd, uint64_t id, uint32_t events, int how) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    epoll_ctl(epoll_.get(), how, fd, &event);
  }

  void add(PeerId id, Descriptor socket, bool accepted, std::string from, uint32_t number) {
    watch(socket.get(), id, EPOLLIN, EPOLL_CTL_ADD);
    connections_.try_emplace(id, std::move(socket), accepted, std::move(from), number, options_);
    if (accepted) strangers_.insert(id);
    dirty_.insert(id);
  }

  void run() {
    // An exception is a failure of what is served, and its owner decides.
    try {
      last_tick_ = HubClock::now();
      while (!is_done()) turn();
      leave();
    } catch (...) {
      leave();
      events_.on_failed(std::current_exception());
    }
  }

  void leave() {
    connections_.clear();
    listeners_.clear();
  }

  bool is_done() {
    if (!is_ending_) return false;
    {
      const std::lock_guard lock(mutex_);
      if (!tasks_.empty()) return false;
    }
    // What was queued before stop() is sent, as far as its patience goes.
    const bool is_idle = std::ranges::none_of(
        connections_, [](const auto& entry) { return entry.second.wants_to_send(); });
    return is_idle || HubClock::now().time_since_epoch().count() >= stop_by_;
  }

  void turn() {
    std::array<epoll_event, 64> events;
    const int count =
        epoll_wait(epoll_.get(), events.data(), events.size(), static_cast<int>(kHubTick.count()));
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == 0) {
        uint64_t ignored = 0;
        static_cast<void>(!read(wake_.get(), &ignored, sizeof(ignored)));
      } else if (id == kListener) {
        accept_all();
      } else {
        if (events[i].events & EPOLLOUT) dirty_.insert(id);
        if (events[i].events & ~EPOLLOUT) receive(id);
      }
    }
    run_tasks();
    for (auto& [id, problem] : std::exchange(unreached_, {})) events_.on_closed(id, problem);
    if (HubClock::now() >= last_tick_ + kHubTick) tick();
    flush_all();
    sent_bytes_ = counts_.sent_bytes;
    received_bytes_ = counts_.received_bytes;
  }

  void run_tasks() {
    std::vector<std::function<void()>> tasks;
    {
      const std::lock_guard lock(mutex_);
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
  }

  void accept_all() {
    for (int i = 0; i < 16; ++i) {
      comm::Endpoint peer;
      peer.length = sizeof(peer.address);
      Descriptor socket(accept4(listeners_.front().get(),
                                reinterpret_cast<sockaddr*>(&peer.address), &peer.length,
                                SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.is_open()) {
        // Out of descriptors. Do not retry at full speed.
        if (errno != EAGAIN && errno != EINTR) std::this_thread::sleep_for(kHubTick);
        return;
      }
      if (strangers_.size() >= kMaxStrangers) {
        // The oldest, which has had the most time.
        end(*strangers_.begin(), "was cut off: too many connections at once");
      }
      add(next_id_++, std::move(socket), /*accepted=*/true, peer.to_string(), 0);
    }
  }

  void receive(PeerId id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    const Connection::Arrivals arrivals{
        .on_open =
            [&](Role role, uint32_t number) {
              strangers_.erase(id);
              events_.on_open(id, role, number);
            },
        .on_frame = [&](Frame frame) { events_.on_frame(id, std::move(frame)); }};
    in_receive_ = id;
    const auto problem = connection.receive(arrivals, counts_);
    in_receive_ = 0;
    if (std::exchange(closes_after_, false)) return close(id);
    dirty_.insert(id);
    if (problem) end(id, *problem);
  }

  void end(PeerId id, const std::string& reason) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    const bool was_refused = !found->second.is_open();
    if (was_refused) refusals_.add(found->second.from(), reason);
    close(id);
    events_.on_closed(id, reason);
  }

  void tick() {
    // Frames that arrived while this thread was away may still be unread.
    const auto now = HubClock::now();
    const auto away = now - std::exchange(last_tick_, now);
    std::vector<std::pair<PeerId, std::string>> ended;
    for (auto& [id, connection] : connections_) {
      // Only long absences: small ones are a turn's own work.
      if (away > kBeatInterval) connection.excuse(away);
      const bool is_stranger = strangers_.contains(id);
      const auto limit = is_stranger ? options_.patience : options_.silence;
      if (now > connection.heard() + limit) {
        ended.emplace_back(id, is_stranger ? "it did not identify itself in time"
                                           : concat("it was silent for ", in_seconds(limit), " s"));
      } else if (connection.is_open() && !connection.wants_to_send() &&
                 now > connection.said() + kBeatInterval) {
        send(id, Frame{}, 0);
      }
    }
    for (const auto& [id, reason] : ended) end(id, reason);
    events_.on_tick();
  }

  void flush_all() {
    for (const PeerId id : std::exchange(dirty_, {})) {
      const auto found = connections_.find(id);
      if (found == connections_.end()) continue;
      Connection& connection = found->second;
      if (!connection.flush(counts_)) {
        end(id, "it closed the connection");
        continue;
      }
      const bool waits = connection.wants_to_send();
      // epoll is told only of changes.
      if (waits == writing_.contains(id)) continue;
      watch(connection.fd(), id, waits ? EPOLLIN | EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
      waits ? static_cast<void>(writing_.insert(id)) : static_cast<void>(writing_.erase(id));
    }
  }

  const HubOptions options_;
  HubEvents& events_;
  comm::Refusals refusals_;
  const Descriptor epoll_;
  const Descriptor wake_;
  std::vector<Descriptor> listeners_;
  std::atomic<bool> is_ending_ = false;
  std::atomic<int64_t> stop_by_ = 0;
  std::atomic<int64_t> sent_bytes_ = 0;
  std::atomic<int64_t> received_bytes_ = 0;
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
  // Used only by the thread.
  std::map<PeerId, Connection> connections_;
  std::set<PeerId> strangers_;  // accepted, and not introduced yet; oldest first
  std::set<PeerId> dirty_;      // may have something to send
  std::set<PeerId> writing_;    // wait for room in their sockets
  std::vector<std::pair<PeerId, std::string>> unreached_;
  HubCounts counts_;
  PeerId in_receive_ = 0;  // 0: none
  bool closes_after_ = false;
  HubClock::time_point last_tick_{};
  PeerId next_id_ = kListener + 1;
  std::thread thread_;
};

Hub::Hub(HubOptions options, HubEvents& events)
    : loop_(std::make_unique<Loop>(std::move(options), events)) {}
Hub::~Hub() = default;
std::string Hub::listen(const std::string& host) { return loop_->listen(host); }
void Hub::start() { loop_->start(); }
void Hub::stop(std::chrono::milliseconds patience) { loop_->stop(patience); }
void Hub::post(std::function<void()> task) { loop_->post(std::move(task)); }
HubCounts Hub::counts() const { return loop_->counts(); }
std::string Hub::refusals() const { return loop_->refusals(); }
PeerId Hub::connect(const std::string& address, uint32_t number) {
  return loop_->connect(address, number);
}
void Hub::send(PeerId peer, Frame frame, int64_t priority) {
  loop_->send(peer, std::move(frame), priority);
}
void Hub::close(PeerId peer) { loop_->close(peer); }

}  // namespace trireme::parallel
