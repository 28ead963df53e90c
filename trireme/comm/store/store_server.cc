#include "trireme/comm/store/store_server.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/comm/net/store_wire.h"
#include "trireme/comm/net/tcp_socket.h"
#include "trireme/comm/store/store_table.h"

namespace trireme::comm {

// One thread serves all connections, so nothing but the count of refusals has a lock. A connection
// begins as a stranger: it may send one hello, has little time for it, and is the first to go when
// there are too many. After its proof it may send requests, one at a time, so its memory is bounded
// by one frame. A request that waits for keys is kept and tried again after each change, as the
// thread must never block. Connections have ids that are never used again. A descriptor would be:
// the one of a closed connection may already be another's while an event for it is in the batch.

namespace {

using Clock = std::chrono::steady_clock;
using wire::Bytes;

// So late a deadline may be noticed; a thread that wakes this often disturbs no rank.
constexpr std::chrono::milliseconds kTick{20};

template <typename T>
void append(Bytes& to, const T& message) {
  const auto* first = reinterpret_cast<const uint8_t*>(&message);
  to.insert(to.end(), first, first + sizeof(message));
}

}  // namespace

class StoreServer::Loop {
 public:
  Loop(std::vector<Descriptor> listeners, StoreServerOptions options)
      : options_(std::move(options)),
        job_(sha256(options_.job)),
        listeners_(std::move(listeners)),
        refusals_(options_.on_refused),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!epoll_.is_open() || !wake_.is_open()) {
      throw Error(concat("cannot serve the store: ", std::strerror(errno)));
    }
    watch(wake_.get(), 0, EPOLLIN, EPOLL_CTL_ADD);
    for (size_t i = 0; i < listeners_.size(); ++i) {
      watch(listeners_[i].get(), 1 + i, EPOLLIN, EPOLL_CTL_ADD);
    }
    next_id_ = 1 + listeners_.size();
    // Signals are for the rank's own threads.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Loop() {
    is_ending_ = true;
    const uint64_t one = 1;
    // If it is full, it wakes the thread as well.
    static_cast<void>(!write(wake_.get(), &one, sizeof(one)));
    thread_.join();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  std::string refusals() const { return refusals_.to_string(); }

 private:
  struct Connection {
    Descriptor socket;
    std::string from;
    Clock::time_point opened;
    wire::Greeting greeting;
    bool is_rank = false;    // has proved it
    bool is_ending = false;  // closed once `out` is sent
    uint32_t rank = 0;
    Bytes in;   // received, not yet processed
    Bytes out;  // [sent, size) is not sent yet
    size_t sent = 0;
    std::optional<StoreTable::Waiting> waiting;
  };

  // The process that first claimed a rank, as long as it has a connection.
  struct Claim {
    std::array<char, 32> process{};
    int num_connections = 0;
  };

  void watch(int fd, uint64_t id, uint32_t events, int how) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    epoll_ctl(epoll_.get(), how, fd, &event);
  }

  void run() {
    std::array<epoll_event, 64> events;
    Clock::time_point last_tick = Clock::now();
    while (!is_ending_) {
      // Without deadlines it sleeps until something comes.
      const bool has_deadlines = !strangers_.empty() || !waiting_.empty();
      const int count = epoll_wait(epoll_.get(), events.data(), events.size(),
                                   has_deadlines ? static_cast<int>(kTick.count()) : -1);
      for (int i = 0; i < count; ++i) {
        const uint64_t id = events[i].data.u64;
        if (id >= 1 && id <= listeners_.size()) {
          accept_from(listeners_[id - 1]);
        } else if (id != 0) {
          serve(id);
        }
      }
      if (has_changed_) answer_waiting(Clock::now());
      if (Clock::now() < last_tick + kTick) continue;
      last_tick = Clock::now();
      answer_waiting(last_tick);
      while (!strangers_.empty()) {
        // Ids grow with time.
        const uint64_t oldest = *strangers_.begin();
        if (last_tick < connections_.at(oldest).opened + options_.patience) break;
        refuse(oldest, "did not say in time who it is");
      }
    }
  }

  void accept_from(const Descriptor& listener) {
    // A few at a time, so that ranks are served in between.
    for (int i = 0; i < 16; ++i) {
      Endpoint peer;
      peer.length = sizeof(peer.address);
      Descriptor socket(accept4(listener.get(), reinterpret_cast<sockaddr*>(&peer.address),
                                &peer.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.is_open() && (errno == EMFILE || errno == ENFILE) && !strangers_.empty()) {
        refuse(*strangers_.begin(), "was cut off for lack of descriptors");
        continue;
      }
      // Out of descriptors, with no stranger to cut off. Do not retry at full speed.
      if (!socket.is_open() && errno != EAGAIN) std::this_thread::sleep_for(kTick);
      if (!socket.is_open()) return;
      if (strangers_.size() >= options_.max_strangers) {
        refuse(*strangers_.begin(), "was cut off: too many connections at once");
      }
      const uint64_t id = next_id_++;
      watch(socket.get(), id, EPOLLIN, EPOLL_CTL_ADD);
      Connection& connection = connections_[id];
      connection.socket = std::move(socket);
      connection.from = peer.to_string();
      connection.opened = Clock::now();
      fill_with_entropy(connection.greeting.nonce);
      strangers_.insert(id);
      append(connection.out, connection.greeting);
      flush(id, connection);
    }
  }

  void drop(uint64_t id) {
    const auto found = connections_.find(id);
    if (found->second.is_rank) --claims_[found->second.rank].num_connections;
    strangers_.erase(id);
    waiting_.erase(id);
    connections_.erase(found);
  }

  void refuse(uint64_t id, const std::string& reason) {
    // A connection that is ending was counted when it was answered.
    const Connection& connection = connections_.at(id);
    if (!connection.is_ending) refusals_.add(connection.from, reason);
    drop(id);
  }

  // Reads what has arrived, answers complete requests and sends what fits. May close the
  // connection.
  void serve(uint64_t id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    if (!receive(id, connection)) return;
    if (!connection.is_rank && !connection.is_ending && !take_hello(id, connection)) return;
    if (connection.is_rank && !take_request(id, connection)) return;
    flush(id, connection);
  }

  // False when the peer is gone or sent too much.
  bool receive(uint64_t id, Connection& connection) {
    std::array<uint8_t, 65536> buffer;
    // No more than a peer may send in its state, so that it cannot fill the memory.
    const size_t most = connection.is_rank ? 4 + wire::kMaxFrameBytes : sizeof(wire::Hello);
    const size_t room = std::min(buffer.size(), most - std::min(most, connection.in.size()));
    const ssize_t count = recv(connection.socket.get(), buffer.data(), room, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (count <= 0) {
      connection.is_rank ? drop(id) : refuse(id, "left without saying who it is");
      return false;
    }
    if (connection.is_ending) return true;
    connection.in.insert(connection.in.end(), buffer.begin(), buffer.begin() + count);
    return true;
  }

  wire::Verdict judge(const wire::Hello& hello, const Connection& connection) const {
    using wire::Verdict;
    const Sha256 expected = wire::client_proof(options_.token, connection.greeting, hello);
    // The token first: without it nothing is said about the job.
    if (!is_same_digest(hello.proof, expected)) return Verdict::kWrongToken;
    if (!is_same_digest(hello.job, job_)) return Verdict::kOtherJob;
    const auto size = static_cast<uint32_t>(options_.size);
    if (hello.size != size || hello.rank >= std::max(1u, size)) return Verdict::kOtherSize;
    if (size == 0) return Verdict::kWelcome;
    // Two processes with one rank number are two jobs on one port, or a rank that was started
    // twice. Either would mix its keys with the other's.
    const auto claim = claims_.find(hello.rank);
    // A process may have several connections.
    const bool is_free = claim == claims_.end() || claim->second.num_connections == 0;
    return is_free || claim->second.process == hello.process ? Verdict::kWelcome
                                                             : Verdict::kRankTaken;
  }

  bool take_hello(uint64_t id, Connection& connection) {
    // What is no hello is refused by its first wrong byte.
    const size_t known = std::min(connection.in.size(), wire::kMagic.size());
    if (!std::equal(connection.in.begin(), connection.in.begin() + known, wire::kMagic.begin())) {
      refuse(id, "is not a Trireme rank");
      return false;
    }
    wire::Hello hello;
    if (connection.in.size() < sizeof(hello)) return true;
    std::memcpy(&hello, connection.in.data(), sizeof(hello));
    connection.in.clear();
    wire::Answer answer{judge(hello, connection), {}};
    if (answer.verdict == wire::Verdict::kWelcome) {
      answer.proof = wire::server_proof(options_.token, connection.greeting, hello);
      strangers_.erase(id);
      connection.is_rank = true;
      connection.rank = hello.rank;
      Claim& claim = claims_[hello.rank];
      claim.process = hello.process;
      ++claim.num_connections;
    } else {
      constexpr const char* kReasons[] = {"", "wrong token", "a rank of another job",
                                          "a rank of a job of another size",
                                          "a second process with a rank that is taken"};
      refusals_.add(connection.from, kReasons[static_cast<uint32_t>(answer.verdict)]);
      connection.is_ending = true;
    }
    append(connection.out, answer);
    return true;
  }

  // One at a time: the next request is taken when the last answer has been sent.
  bool take_request(uint64_t id, Connection& connection) {
    const auto length = wire::frame_length(connection.in);
    const bool is_busy = connection.waiting || !connection.out.empty();
    const bool is_malformed = length && (*length == 0 || *length > wire::kMaxFrameBytes ||
                                         connection.in.size() > 4 + *length);
    if (is_malformed || (is_busy && !connection.in.empty())) {
      refuse(id, "sent what no rank sends");
      return false;
    }
    if (!length || connection.in.size() < 4 + *length) return true;
    StoreTable::Outcome outcome = answer(std::span(connection.in).subspan(4));
    if (!outcome.reply && !outcome.waiting) {
      refuse(id, "sent what no rank sends");
      return false;
    }
    // Gives the memory back, too.
    connection.in = {};
    if (outcome.waiting) {
      connection.waiting = std::move(outcome.waiting);
      waiting_.insert(id);
    } else {
      connection.out = std::move(*outcome.reply);
      has_changed_ = true;
    }
    return true;
  }

  StoreTable::Outcome answer(std::span<const uint8_t> request) {
    if (!options_.answer) return table_.apply(request);
    Bytes reply = options_.answer(request);
    if (reply.empty()) return {};
    return {.reply = std::move(reply), .waiting = std::nullopt};
  }

  void answer_waiting(Clock::time_point now) {
    has_changed_ = false;
    // A copy, because flush() may drop a connection.
    const std::vector<uint64_t> ids(waiting_.begin(), waiting_.end());
    for (const uint64_t id : ids) {
      Connection& connection = connections_.at(id);
      auto reply = table_.retry(*connection.waiting, now);
      if (!reply) continue;
      connection.waiting.reset();
      waiting_.erase(id);
      connection.out = std::move(*reply);
      flush(id, connection);
    }
  }

  void flush(uint64_t id, Connection& connection) {
    while (connection.sent < connection.out.size()) {
      const ssize_t count = send(connection.socket.get(), connection.out.data() + connection.sent,
                                 connection.out.size() - connection.sent, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) break;
      if (count < 0) return drop(id);
      connection.sent += static_cast<size_t>(count);
    }
    const bool is_sent = connection.sent == connection.out.size();
    if (is_sent && connection.is_ending) return drop(id);
    if (is_sent) connection.out = {};
    if (is_sent) connection.sent = 0;
    // Ignore further input from a connection that is ending.
    const uint32_t reads = connection.is_ending ? 0u : EPOLLIN;
    // Writable is asked for only while something waits, or epoll would report it all the time.
    watch(connection.socket.get(), id, is_sent ? reads : reads | EPOLLOUT, EPOLL_CTL_MOD);
  }

  const StoreServerOptions options_;
  const Sha256 job_;
  const std::vector<Descriptor> listeners_;
  Refusals refusals_;
  const Descriptor epoll_;
  const Descriptor wake_;
  std::atomic<bool> is_ending_ = false;
  // Used only by the thread.
  StoreTable table_;
  std::map<uint64_t, Connection> connections_;
  std::set<uint64_t> strangers_;  // oldest first
  std::set<uint64_t> waiting_;
  std::map<uint32_t, Claim> claims_;
  bool has_changed_ = false;
  uint64_t next_id_ = 0;
  std::thread thread_;
};

StoreServer::StoreServer(std::vector<Descriptor> listeners, StoreServerOptions options)
    : loop_(std::make_unique<Loop>(std::move(listeners), std::move(options))) {}

StoreServer::~StoreServer() = default;

std::string StoreServer::refusals() const { return loop_->refusals(); }

}  // namespace trireme::comm
