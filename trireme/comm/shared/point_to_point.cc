#include "trireme/comm/shared/point_to_point.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEnvelopes = 8;  // messages of a pair that may wait for their recvs, or are lent
// Others must get past what is lent: a loan may end only after messages that come behind it.
constexpr int kMostLent = kEnvelopes - 2;
constexpr uint32_t kPieces = 2;
constexpr size_t kPieceBytes = 32 << 10;
constexpr int kSpins = 200;
constexpr auto kSlice = std::chrono::milliseconds(50);

enum Taken : uint32_t { kFree, kTaken, kLent };

std::string text_of(const char* dtype, size_t num_bytes, int tag) {
  return concat(num_bytes, " bytes of ", dtype, " with tag ", tag);
}

const char* name_of(int32_t dtype) { return c10::toString(static_cast<c10::ScalarType>(dtype)); }

}  // namespace

// Written by the sender while it is free, given back by the receiver.
struct alignas(64) PointToPoint::Envelope {
  std::atomic<uint32_t> is_ready;
  std::atomic<uint32_t> uses;     // counts how often it was given back
  std::atomic<uint32_t> written;  // pieces
  std::atomic<uint32_t> read;
  uint64_t number;  // orders the pair's messages
  uint64_t num_bytes;
  uint64_t place;
  int32_t tag;
  int32_t dtype;
  std::atomic<uint32_t> taken;  // the receiver's mark
  // Among threads: holds the data. Whoever takes it out deletes it: the receiver, or a sender that
  // gives up before it has come.
  std::atomic<at::Tensor*> memory;
};

// What a lent tensor holds: the memory, and the envelope until it is given back.
struct PointToPoint::Lease {
  std::shared_ptr<Segment> segment;  // of envelope and bell
  std::shared_ptr<const Heap> heap;
  std::unique_ptr<at::Tensor> memory;  // null between processes
  Envelope* envelope;
  Bell* bell;  // the sender's

  ~Lease() {
    memory.reset();
    give_back(*envelope, *bell);
  }
  static void give_back(Envelope& envelope, Bell& bell) {
    envelope.uses.fetch_add(1);  // before it can be used again
    envelope.is_ready.store(0);
    bell.ring();
  }
};

struct PointToPoint::Transfer {
  Message message;
  std::shared_ptr<PendingWork> work;
  Clock::time_point deadline;
  int source = -1;                     // of a recv, once matched
  Envelope* envelope = nullptr;        // once posted or matched
  int index = 0;                       // of the envelope in its ring
  uint32_t use = 0;                    // of the envelope
  size_t offset = 0;                   // bytes moved
  std::unique_ptr<at::Tensor> memory;  // of a recv from a thread: the sender's
  bool is_symmetric = false;           // of a send: the receiver reads it where it lies
  bool is_done = false;

  size_t size() const { return message.data.size(); }
  void end(const std::exception_ptr& error) {
    is_done = true;
    std::exception_ptr failure = error;
    try {
      if (message.on_end) message.on_end(error == nullptr);
    } catch (...) {
      failure = std::current_exception();  // of this message alone
    }
    // Lets go of the tensors.
    message.on_end = nullptr;
    message.memory.reset();
    message.borrowed = nullptr;
    memory = nullptr;
    if (message.is_send && is_symmetric && error != nullptr) {
      delete envelope->memory.exchange(nullptr);
    }
    work->finish(failure, failure == nullptr ? source : -1);
  }
  // Whether `later` must not start before this one has: sends of a pair share its ring, recvs take
  // messages in the order of their calls.
  bool precedes(const Transfer& later) const {
    const Message& other = later.message;
    if (message.is_send != other.is_send) return false;
    const bool same_peer = message.peer == other.peer;
    if (message.is_send) return same_peer;
    // One from any source leaves out those that earlier ones wait for: see is_claimed().
    return (same_peer || message.peer == kAnySource) && message.tag == other.tag;
  }
};

SegmentSize PointToPoint::segment_size(int size) {
  const auto pairs = static_cast<size_t>(size) * static_cast<size_t>(size);
  return {static_cast<size_t>(size) * sizeof(Bell) + pairs * kEnvelopes * sizeof(Envelope),
          pairs * kEnvelopes * kPieces * kPieceBytes};
}

PointToPoint::PointToPoint(std::shared_ptr<Segment> segment, size_t committed, size_t reserved,
                           Exchange& exchange, const Heap& heap, std::shared_ptr<AbortSwitch> abort)
    : segment_(std::move(segment)),
      exchange_(exchange),
      heap_(heap),
      abort_(std::move(abort)),
      bells_(reinterpret_cast<Bell*>(segment_->data() + committed)),
      envelopes_(reinterpret_cast<Envelope*>(bells_ + exchange.size())),
      pieces_offset_(reserved),
      next_number_(exchange.size(), 0),
      has_pieces_(exchange.size(), 0) {}

PointToPoint::~PointToPoint() {
  bool is_idle = false;
  {
    const std::lock_guard lock(mutex_);
    is_idle = transfers_.empty();
    stop_ = true;
  }
  if (!is_idle) abort_->abort();
  bells_[exchange_.rank()].ring();
  if (thread_.joinable()) thread_.join();
  fail_all(std::make_exception_ptr(CommError(
      concat("group ", exchange_.options().name, " was destroyed with messages under way"))));
}

void PointToPoint::wake_all() {
  for (int rank = 0; rank < exchange_.size(); ++rank) bells_[rank].ring();
}

PointToPoint::Envelope* PointToPoint::ring(int from, int to) const {
  return envelopes_ + (from * exchange_.size() + to) * kEnvelopes;
}

std::byte* PointToPoint::piece(int from, int to, int index, uint32_t number) const {
  const size_t envelope = (static_cast<size_t>(from) * exchange_.size() + to) * kEnvelopes + index;
  return segment_->data() + pieces_offset_ + (envelope * kPieces + number % kPieces) * kPieceBytes;
}

WorkPtr PointToPoint::start(Message message, bool background) {
  exchange_.check_aborted();
  auto transfer = std::make_shared<Transfer>();
  transfer->deadline = Clock::now() + message.timeout;
  transfer->message = std::move(message);
  transfer->work = std::make_shared<PendingWork>(abort_);
  {
    const std::lock_guard lock(mutex_);
    transfers_.push_back(transfer);
    if (background && !thread_.joinable()) {
      thread_ = std::thread([this] { drive([] { return false; }); });
    }
  }
  if (background) {
    bells_[exchange_.rank()].ring();
  } else {
    drive([&] { return transfer->is_done; });
    transfer->work->wait();
  }
  return transfer->work;
}

// Moves what can be moved until `is_over()`, asked under the lock, or the destructor runs.
void PointToPoint::drive(const std::function<bool()>& is_over) {
  const c10::NoGradGuard no_grad;
  bool is_finished = false;
  const auto step = [&] {
    const std::lock_guard lock(mutex_);
    const bool has_moved = !is_over() && advance_all();
    is_finished = is_over() || stop_;
    return has_moved || is_finished;
  };
  for (int idle = 0; !is_finished;) {
    if (step()) {
      idle = 0;
    } else if (++idle < kSpins) {
      spin_pause();
    } else if (!bells_[exchange_.rank()].sleep(step, kSlice)) {
      const std::lock_guard lock(mutex_);
      look_for_losses();
    }
  }
}

// One round over all transfers, in the order of their calls. True when any moved.
bool PointToPoint::advance_all() {
  bool has_moved = false;
  try {
    waiting_.clear();
    for (const TransferPtr& transfer : transfers_) {
      const auto precedes = [&](const Transfer* earlier) { return earlier->precedes(*transfer); };
      const bool starts = transfer->envelope == nullptr;
      if (starts && std::ranges::any_of(waiting_, precedes)) continue;
      has_moved |= transfer->message.is_send ? advance_send(*transfer) : advance_recv(*transfer);
      if (transfer->envelope == nullptr) waiting_.push_back(transfer.get());
    }
  } catch (const std::exception& error) {
    exchange_.abort(error.what());  // no effect when that is why
    fail_all(std::current_exception());
    return true;
  }
  std::erase_if(transfers_, [](const TransferPtr& transfer) {
    if (!transfer->is_done) return false;
    transfer->end(nullptr);
    return true;
  });
  return has_moved;
}

bool PointToPoint::advance_send(Transfer& send) {
  const int peer = send.message.peer;
  const bool posts = send.envelope == nullptr;
  if (posts && !post(send)) return false;
  Envelope& envelope = *send.envelope;
  bool has_moved = posts;
  if (send.is_symmetric) {
    send.is_done = envelope.uses.load() != send.use;  // the receiver has copied it
    return has_moved || send.is_done;
  }
  while (send.offset < send.size() && envelope.written.load() - envelope.read.load() < kPieces) {
    const size_t size = std::min(kPieceBytes, send.size() - send.offset);
    const uint32_t number = envelope.written.load();
    std::memcpy(piece(exchange_.rank(), peer, send.index, number),
                send.message.data.data() + send.offset, size);
    envelope.written.store(number + 1);
    send.offset += size;
    has_moved = true;
  }
  send.is_done = send.offset == send.size();
  if (posts) envelope.is_ready.store(1);  // with its first pieces
  if (has_moved) bells_[peer].ring();
  return has_moved;
}

// Takes a free envelope and fills it in.
bool PointToPoint::post(Transfer& send) {
  const int peer = send.message.peer;
  Envelope* ring = this->ring(exchange_.rank(), peer);
  Envelope* free = std::find_if(ring, ring + kEnvelopes,
                                [](const Envelope& e) { return e.is_ready.load() == 0; });
  if (free == ring + kEnvelopes) return false;
  send.envelope = free;
  send.index = static_cast<int>(free - ring);
  send.use = free->uses.load();
  free->place = heap_.place_of(send.message.data.data(), send.size());
  if (send.size() <= kPieceBytes) free->place = Heap::kOrdinary;  // buffered: nobody waits
  send.is_symmetric = free->place != Heap::kOrdinary;
  free->number = next_number_[peer]++;
  free->num_bytes = send.size();
  free->tag = send.message.tag;
  free->dtype = send.message.dtype;
  free->taken.store(kFree);
  free->written.store(0);
  free->read.store(0);
  const uint32_t bit = 1u << send.index;
  if (!send.is_symmetric && send.size() > 0 && (has_pieces_[peer] & bit) == 0) {
    const std::byte* memory = piece(exchange_.rank(), peer, send.index, 0);
    segment_->commit(memory - segment_->data(), kPieces * kPieceBytes);
    has_pieces_[peer] |= bit;
  }
  if (send.is_symmetric) {
    free->memory.store(heap_.is_of_threads() ? new at::Tensor(send.message.memory) : nullptr);
    free->is_ready.store(1);
    bells_[peer].ring();
  }
  return true;
}

bool PointToPoint::advance_recv(Transfer& recv) {
  bool has_moved = false;
  if (recv.envelope == nullptr) {
    if (!match(recv)) return false;
    has_moved = true;
    open(recv);
    recv.is_done = recv.message.borrowed != nullptr && lend(recv);
    if (recv.is_done) return true;
  }
  Envelope& envelope = *recv.envelope;
  std::byte* out = recv.message.data.data();
  if (envelope.place != Heap::kOrdinary) {
    std::memcpy(out, heap_.at(envelope.place), recv.size());
    recv.offset = recv.size();
  }
  while (recv.offset < recv.size() && envelope.read.load() != envelope.written.load()) {
    const uint32_t number = envelope.read.load();
    const size_t size = std::min(kPieceBytes, recv.size() - recv.offset);
    std::memcpy(out + recv.offset, piece(recv.source, exchange_.rank(), recv.index, number), size);
    envelope.read.store(number + 1);
    recv.offset += size;
    has_moved = true;
  }
  if (recv.offset == recv.size()) {
    recv.is_done = true;
    recv.memory = nullptr;
    Lease::give_back(envelope, bells_[recv.source]);
    return true;
  }
  if (has_moved) bells_[recv.source].ring();
  return has_moved;
}

// Takes hold of the data of a message that has just been matched.
void PointToPoint::open(Transfer& recv) {
  Envelope& envelope = *recv.envelope;
  if (envelope.place == Heap::kOrdinary || !heap_.is_of_threads()) return;
  recv.memory.reset(envelope.memory.exchange(nullptr));
  if (recv.memory == nullptr) {
    exchange_.check_aborted();
    exchange_.fail("recv", exchange_.title_of(recv.source) + " has given up");
  }
}

// True when the sender's memory is what was borrowed; false: there is now a tensor to copy it into.
bool PointToPoint::lend(Transfer& recv) {
  Borrowed& borrowed = *recv.message.borrowed;
  Envelope& envelope = *recv.envelope;
  Envelope* const ring = this->ring(recv.source, exchange_.rank());
  const auto is_lent = [](const Envelope& e) {
    return e.is_ready.load() != 0 && e.taken.load() == kLent;
  };
  if (envelope.place == Heap::kOrdinary ||
      std::count_if(ring, ring + kEnvelopes, is_lent) >= kMostLent) {
    borrowed.data = at::empty(borrowed.sizes, borrowed.options);
    recv.message.data = {static_cast<std::byte*>(borrowed.data.data_ptr()), recv.size()};
    return false;
  }
  envelope.taken.store(kLent);
  auto lease = std::make_shared<Lease>(segment_, heap_.shared_from_this(), std::move(recv.memory),
                                       &envelope, &bells_[recv.source]);
  borrowed.data = at::from_blob(
      heap_.at(envelope.place), borrowed.sizes, [lease = std::move(lease)](void*) {},
      borrowed.options);
  return true;
}

// The oldest message in a ring with `tag` that no recv has taken; null when there is none.
PointToPoint::Envelope* PointToPoint::oldest(Envelope* ring, int tag) const {
  Envelope* best = nullptr;
  // Twice: a message may have come behind the look that found a later one, but before that one.
  for (int look = 0; look < 2; ++look) {
    for (Envelope* found = ring; found != ring + kEnvelopes; ++found) {
      // In this order: a lent one may be given back and used again meanwhile, and is free before it
      // is ready.
      if (found->taken.load() != kFree || found->is_ready.load() == 0 || found->tag != tag)
        continue;
      if (best == nullptr || found->number < best->number) best = found;
    }
    if (best == nullptr) return nullptr;
  }
  return best;
}

// Whether an earlier recv waits for this rank's next message with the tag.
bool PointToPoint::is_claimed(int source, int tag) const {
  return std::ranges::any_of(waiting_, [&](const Transfer* earlier) {
    const Message& message = earlier->message;
    return !message.is_send && message.peer == source && message.tag == tag;
  });
}

// What keeps a message with another tag from coming; empty: nothing.
std::string PointToPoint::obstacle(const Transfer& transfer) const {
  const Message& message = transfer.message;
  if (transfer.envelope != nullptr || message.peer == kAnySource) return "";
  const int from = message.is_send ? exchange_.rank() : message.peer;
  const Envelope* const ring = this->ring(from, message.is_send ? message.peer : exchange_.rank());
  const bool is_full = std::all_of(ring, ring + kEnvelopes,
                                   [](const Envelope& e) { return e.is_ready.load() != 0; });
  if (!is_full) return "";
  return concat("; ", kEnvelopes, " earlier messages of ", exchange_.title_of(from),
                " have not been received, and no more can wait: receive them in about the order "
                "of their sends");
}

// Takes the oldest message of the wanted rank, or of the first rank that has one, with the tag.
bool PointToPoint::match(Transfer& recv) {
  const Message& message = recv.message;
  const int size = exchange_.size();
  for (int i = 0; i < (message.peer == kAnySource ? size : 1) && recv.envelope == nullptr; ++i) {
    recv.source = message.peer == kAnySource ? (next_source_ + i) % size : message.peer;
    if (message.peer == kAnySource && is_claimed(recv.source, message.tag)) continue;
    Envelope* const ring = this->ring(recv.source, exchange_.rank());
    recv.envelope = oldest(ring, message.tag);
    if (recv.envelope != nullptr) recv.index = static_cast<int>(recv.envelope - ring);
  }
  if (recv.envelope == nullptr) {
    recv.source = -1;
    return false;
  }
  recv.envelope->taken.store(kTaken);
  next_source_ = (recv.source + 1) % size;
  const Envelope& envelope = *recv.envelope;
  if (envelope.num_bytes != recv.size() || envelope.dtype != message.dtype) {
    exchange_.fail("recv",
                   concat(exchange_.title_of(recv.source), " sends ",
                          text_of(name_of(envelope.dtype), envelope.num_bytes, envelope.tag), ", ",
                          exchange_.title_of(exchange_.rank()), " expects ",
                          text_of(name_of(message.dtype), recv.size(), message.tag)));
  }
  return true;
}

// Fails everything when a transfer's peer will not come any more, or has not come in time.
void PointToPoint::look_for_losses() {
  std::vector<std::string> absences;
  for (int rank = 0; rank < exchange_.size(); ++rank)
    absences.push_back(rank == exchange_.rank() ? "" : exchange_.absence_of(rank));
  // Once more after that look: a peer may have sent before it left.
  if (transfers_.empty() || advance_all()) return;
  try {
    exchange_.check_aborted();
    for (const TransferPtr& transfer : transfers_) {
      const Message& message = transfer->message;
      const char* operation = message.is_send ? "send" : "recv";
      const int peer = transfer->source >= 0 ? transfer->source : message.peer;
      std::string absence;
      if (peer != kAnySource) {
        absence = absences[peer];
      } else if (std::ranges::count(absences, "") == 1) {
        absence = "every other rank has left the group";
      } else {
        const auto died = std::ranges::find_if(
            absences, [](const std::string& text) { return text.ends_with(" died"); });
        if (died != absences.end()) absence = *died;
      }
      if (!absence.empty()) exchange_.fail(operation, absence);
      if (Clock::now() > transfer->deadline) {
        const bool is_lent = message.is_send && transfer->envelope != nullptr &&
                             transfer->envelope->taken.load() == kLent;
        exchange_.fail(
            operation,
            concat("timed out after ", message.timeout.count() / 1000.0, " s waiting for ",
                   peer == kAnySource ? "any rank" : exchange_.title_of(peer), ", tag ",
                   message.tag, is_lent ? ", which it has borrowed" : "", obstacle(*transfer)));
      }
    }
  } catch (...) {
    fail_all(std::current_exception());
  }
}

void PointToPoint::fail_all(const std::exception_ptr& error) {
  for (const TransferPtr& transfer : std::exchange(transfers_, {})) {
    transfer->end(error);
  }
}

}  // namespace trireme::comm
