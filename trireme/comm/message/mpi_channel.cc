#include "trireme/comm/message/mpi_channel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/comm/communicator.h"

namespace trireme::comm {

// MPI has no wait with a limit and says nothing of a peer that has left. So a wait is a loop of
// tests that spins, yields and then sleeps, and looks now and then whether the peer is still there.
// Notices travel over a communicator of their own and never match data; they are so small that
// sending them does not wait. The memory of a message must outlive it: one that is given up is
// cancelled, or gets a last chance and is left to MPI.

using Clock = std::chrono::steady_clock;

namespace {

// Tags on the control communicator. Those from kFirstSplitTag on tell who is ready for which split.
constexpr int kWordTag = 0;
constexpr int kClosedTag = 1;
constexpr int kFirstSplitTag = 2;
constexpr size_t kMaxWord = 1000;  // below every transport's eager limit, so sending never waits
// After a peer has left, its earlier messages may still be on the way.
constexpr auto kGrace = std::chrono::milliseconds(200);
constexpr auto kLastChance = std::chrono::milliseconds(200);

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<size_t>(length));
  return "mpi (" + version.substr(0, version.find_first_of(",\n")) + ")";
}

// Any number of bytes as one item, because MPI counts in int.
class ByteType {
 public:
  explicit ByteType(size_t num_bytes) {
    constexpr size_t kPage = 1 << 20;
    const size_t num_pages = num_bytes / kPage;
    MPI_Datatype page = MPI_DATATYPE_NULL;
    MPI_Datatype parts[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    check_mpi(MPI_Type_contiguous(kPage, MPI_BYTE, &page));
    check_mpi(MPI_Type_contiguous(static_cast<int>(num_pages), page, &parts[0]));
    const int counts[2] = {1, static_cast<int>(num_bytes % kPage)};
    const MPI_Aint places[2] = {0, static_cast<MPI_Aint>(num_pages * kPage)};
    check_mpi(MPI_Type_create_struct(2, counts, places, parts, &type_));
    check_mpi(MPI_Type_commit(&type_));
    MPI_Type_free(&parts[0]);
    MPI_Type_free(&page);
  }
  ~ByteType() { MPI_Type_free(&type_); }  // a message on its way keeps it alive
  ByteType(const ByteType&) = delete;
  ByteType& operator=(const ByteType&) = delete;
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

constexpr size_t kMaxPlainBytes = 1 << 30;

}  // namespace

void check_mpi(int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(std::string(text, static_cast<size_t>(length)));
}

// One rank's end of a group: the communicators and the notices from peers.
struct MpiConnections {
  MpiConnections(MPI_Comm data_comm, MPI_Comm control_comm, bool core_each)
      : data(data_comm), control(control_comm), has_core_each(core_each) {
    for (const MPI_Comm comm : {data, control}) {
      // MPI's default handler ends the program.
      check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    }
    check_mpi(MPI_Comm_rank(data, &rank));
    check_mpi(MPI_Comm_size(data, &size));
    left_at.resize(size);
  }
  // Notices that were not received yet keep their memory.
  ~MpiConnections() {
    for (auto& [text, request] : notices) {
      int done = 0;
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done == 0) {
        // Left behind on purpose: MPI may still read it.
        [[maybe_unused]] const auto* const kept = text.release();
      }
    }
  }
  MpiConnections(const MpiConnections&) = delete;
  MpiConnections& operator=(const MpiConnections&) = delete;

  void tell_all(int tag, const std::string& text) {
    const std::lock_guard lock(mutex);
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      // MPI reads it until it has arrived.
      auto copy = std::make_unique<std::string>(text.substr(0, kMaxWord));
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Isend(copy->data(), static_cast<int>(copy->size()), MPI_BYTE, peer, tag,
                          control, &request));
      notices.emplace_back(std::move(copy), request);
    }
  }

  // Throws when a peer has left word, so that a late rank learns of it.
  void check_word() {
    int found = 0;
    // Probe twice: a probe that finds nothing receives what has arrived, and the next one finds it.
    for (int turn = 0; turn < 2 && found == 0; ++turn) {
      check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kWordTag, control, &found, MPI_STATUS_IGNORE));
    }
    if (found != 0) throw std::runtime_error("a peer gave up");
  }

  // Receives the peers' notices.
  void listen() {
    const std::lock_guard lock(mutex);
    for (const int tag : {kWordTag, kClosedTag}) {
      int found = 1;
      while (found != 0) {
        MPI_Status status;
        check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag, control, &found, &status));
        if (found == 0) break;
        int length = 0;
        check_mpi(MPI_Get_count(&status, MPI_BYTE, &length));
        std::string text(static_cast<size_t>(length), '\0');
        check_mpi(MPI_Recv(text.data(), length, MPI_BYTE, status.MPI_SOURCE, tag, control,
                           MPI_STATUS_IGNORE));
        if (tag == kWordTag && word.empty()) word = text;
        if (tag == kClosedTag) left_at[status.MPI_SOURCE] = Clock::now();
      }
    }
  }

  // Throws when a peer gave up, or when `peer` (for kAnySource: every peer) has left.
  void check_peer(int peer) {
    listen();
    const std::lock_guard lock(mutex);
    if (!word.empty()) throw std::runtime_error("a peer gave up");
    const auto has_left = [&](int other) {
      return left_at[other] != Clock::time_point() && Clock::now() - left_at[other] > kGrace;
    };
    if (peer != kAnySource) {
      if (has_left(peer)) throw std::runtime_error(concat("rank ", peer, " has left"));
      return;
    }
    for (int other = 0; other < size; ++other) {
      if (other != rank && !has_left(other)) return;
    }
    throw std::runtime_error("every other rank has left");
  }

  const MPI_Comm data;
  const MPI_Comm control;
  const bool has_core_each;
  int rank = 0;
  int size = 1;
  const std::string transport = library_version();
  std::atomic<bool> closed = false;

  std::mutex mutex;
  std::string word;                        // the first one that a peer left
  std::vector<Clock::time_point> left_at;  // [size]; the epoch: still there
  std::vector<std::pair<std::unique_ptr<std::string>, MPI_Request>> notices;
};

namespace {

// Waits longer and longer between two polls: spins, yields, sleeps.
class Patience {
 public:
  // With a core for each rank spinning costs nobody; without one it takes the peer's time.
  explicit Patience(bool has_core_each) : num_spins_(has_core_each ? 10000 : 20) {}
  void pass() {
    ++turn_;
    if (turn_ < num_spins_) return;
    if (turn_ < num_spins_ + 20000) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  // Seldom, for it takes a lock and two probes.
  bool is_time_to_check() const { return turn_ % 64 == 63; }

 private:
  int64_t num_spins_;
  int64_t turn_ = 0;
};

class MpiMessage : public ChannelMessage {
 public:
  MpiMessage(std::shared_ptr<MpiConnections> connections, int peer, bool is_recv)
      : connections_(std::move(connections)), peer_(peer), is_recv_(is_recv) {}
  ~MpiMessage() override {
    if (request == MPI_REQUEST_NULL) return;
    // Given up. A recv that nobody has sent to is cancelled; a message under way may finish.
    if (is_recv_) MPI_Cancel(&request);
    const auto deadline = Clock::now() + kLastChance;
    int done = 0;
    while (done == 0 && Clock::now() < deadline) {
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
    }
    if (done == 0) MPI_Request_free(&request);
  }

  void wait(std::chrono::milliseconds timeout) override {
    // Never early, because callers detect a timeout by their own clock.
    const auto deadline = Clock::now() + timeout + std::chrono::milliseconds(1);
    MPI_Status status;
    int done = 0;
    for (Patience patience(connections_->has_core_each);; patience.pass()) {
      check_mpi(MPI_Test(&request, &done, &status));
      if (done != 0) break;
      if (is_cancelled_.load()) throw std::runtime_error("the wait was aborted");
      if (!patience.is_time_to_check()) continue;
      if (Clock::now() > deadline) throw std::runtime_error("no answer");
      connections_->check_peer(peer_);
    }
    if (is_recv_) source_ = status.MPI_SOURCE;
  }
  void cancel() override { is_cancelled_ = true; }
  int source() const override { return source_; }

  MPI_Request request = MPI_REQUEST_NULL;

 private:
  std::shared_ptr<MpiConnections> connections_;
  int peer_;
  bool is_recv_;
  std::atomic<bool> is_cancelled_ = false;
  int source_ = -1;
};

// Runs start(count, type, request) on `num_bytes` bytes.
template <typename Start>
std::unique_ptr<MpiMessage> start_message(const std::shared_ptr<MpiConnections>& connections,
                                          size_t num_bytes, int peer, bool is_recv, Start start) {
  if (connections->closed.load()) throw std::runtime_error("the connections are closed");
  if (is_recv) connections->check_word();
  auto message = std::make_unique<MpiMessage>(connections, peer, is_recv);
  if (num_bytes <= kMaxPlainBytes) {
    check_mpi(start(static_cast<int>(num_bytes), MPI_BYTE, &message->request));
  } else {
    check_mpi(start(1, ByteType(num_bytes).get(), &message->request));
  }
  return message;
}

}  // namespace

MpiChannel::MpiChannel(MPI_Comm data, MPI_Comm control, bool has_core_each)
    : connections_(std::make_shared<MpiConnections>(data, control, has_core_each)) {}

MpiChannel::~MpiChannel() { close(); }

int MpiChannel::rank() const { return connections_->rank; }
int MpiChannel::size() const { return connections_->size; }
const std::string& MpiChannel::transport() const { return connections_->transport; }

ChannelMessagePtr MpiChannel::send(const void* data, size_t num_bytes, int peer, int tag) {
  return start_message(connections_, num_bytes, peer, false,
                       [&](int count, MPI_Datatype type, MPI_Request* request) {
                         return MPI_Isend(data, count, type, peer, tag, connections_->data,
                                          request);
                       });
}

ChannelMessagePtr MpiChannel::recv(void* data, size_t num_bytes, int peer, int tag) {
  const int source = peer == kAnySource ? MPI_ANY_SOURCE : peer;
  return start_message(
      connections_, num_bytes, peer, true, [&](int count, MPI_Datatype type, MPI_Request* request) {
        return MPI_Irecv(data, count, type, source, tag, connections_->data, request);
      });
}

void MpiChannel::leave_word(const std::string& reason) noexcept {
  try {
    connections_->tell_all(kWordTag, reason);
  } catch (const std::exception&) {  // the peers notice by their timeouts
  }
}

std::string MpiChannel::word_left() noexcept {
  try {
    connections_->listen();
    const std::lock_guard lock(connections_->mutex);
    return connections_->word;
  } catch (const std::exception&) {
    return "";
  }
}

void MpiChannel::close() noexcept {
  if (connections_->closed.exchange(true)) return;
  try {
    connections_->tell_all(kClosedTag, "");
  } catch (const std::exception&) {  // as above
  }
}

std::unique_ptr<MessageChannel> MpiChannel::split(const std::string& uid,
                                                  const std::vector<int>& members,
                                                  std::chrono::milliseconds timeout) {
  MpiConnections& mine = *connections_;
  // The same for all members, whatever they were built with, and rarely that of another split.
  const int tag = kFirstSplitTag + static_cast<int>(random_key(0, uid).value % (uint64_t{1} << 29));
  // MPI_Comm_create_group waits without bound, so the members first make sure that all are there.
  char ready = 1;
  std::vector<char> others(members.size());
  std::vector<std::unique_ptr<MpiMessage>> messages;
  for (size_t i = 0; i < members.size(); ++i) {
    const int peer = members[i];
    if (peer == mine.rank) continue;
    messages.push_back(start_message(
        connections_, 1, peer, true, [&](int count, MPI_Datatype type, auto* request) {
          return MPI_Irecv(&others[i], count, type, peer, tag, mine.control, request);
        }));
    messages.push_back(start_message(
        connections_, 1, peer, false, [&](int count, MPI_Datatype type, auto* request) {
          return MPI_Isend(&ready, count, type, peer, tag, mine.control, request);
        }));
  }
  for (const auto& message : messages) message->wait(timeout);

  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group chosen = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(mine.data, &all));
  check_mpi(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &chosen));
  MPI_Comm comms[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
  // Of the members only, where MPI_Comm_split would need every rank of the parent, also those that
  // split off another group or none.
  for (MPI_Comm& comm : comms) check_mpi(MPI_Comm_create_group(mine.data, chosen, tag, &comm));
  MPI_Group_free(&chosen);
  MPI_Group_free(&all);
  return std::make_unique<MpiChannel>(comms[0], comms[1], mine.has_core_each);
}

}  // namespace trireme::comm
