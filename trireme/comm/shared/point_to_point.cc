// Length: one state machine. Its two sides, send and recv, read best beside each other.
#include "trireme/comm/shared/point_to_point.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>

#include "trireme/base/error.h"
#include "trireme/comm/sized_message.h"

namespace trireme::comm {

// All transfers of a rank are in one list, and whoever waits moves all of them. mutex_ guards the
// list and this rank's ends of the rings; only the end of a loan works without it, on any thread.
// Transfers are moved in the order of their calls, and one that precedes() another holds it back.
// That keeps messages of one tag in order.

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEnvelopes = MessageRings::kEnvelopes;
// Two envelopes stay for later messages: a loan may end only after one of those has come.
constexpr int kMostLent = kEnvelopes - 2;
constexpr size_t kPieceBytes = MessageRings::kPieceBytes;
constexpr int kSpins = 200;
constexpr auto kSlice = std::chrono::milliseconds(50);

std::string text_of(const char* dtype, size_t num_bytes, int tag) {
  return concat(num_bytes, " bytes of ", dtype, " with tag ", shown_tag(tag));
}

const char* name_of(int32_t dtype) { return c10::toString(static_cast<c10::ScalarType>(dtype)); }

}  // namespace

// A lent tensor holds this; it may outlive the group. Its end gives the envelope back.
struct PointToPoint::Lease {
  std::shared_ptr<Segment> segment;    // keeps envelope and bell mapped
  std::shared_ptr<const Heap> heap;    // keeps the data mapped
  std::unique_ptr<at::Tensor> memory;  // among threads keeps the data; null between processes
  Envelope* envelope;
  Bell* bell;  // the sender's

  ~Lease() {
    memory.reset();
    envelope->give_back(*bell);
  }
};

// A message under way: waiting (in waiting_), begun (has envelope or aside), done.
struct PointToPoint::Transfer {
  Message message;
  std::shared_ptr<PendingWork> work;
  Clock::time_point deadline;
  int source = -1;                     // recv: whose message, once matched
  Envelope* envelope = nullptr;        // once posted or matched
  AsidePtr aside;                      // recv: the message, when it was moved aside
  uint32_t use = 0;                    // send: envelope->uses when posted
  size_t offset = 0;                   // bytes moved so far
  std::byte* symmetric = nullptr;      // recv: where the sender's data lies; null: in pieces
  std::unique_ptr<at::Tensor> memory;  // recv among threads: holds the sender's data
  bool is_symmetric = false;           // send: the receiver reads the data where it lies
  bool is_held = false;                // send among threads: put its tensor into the envelope
  bool is_done = false;

  size_t size() const { return message.data.size(); }
  bool has_begun() const { return envelope != nullptr || aside != nullptr; }
  void end(const std::exception_ptr& error) {
    is_done = true;
    std::exception_ptr failure = error;
    try {
      if (message.on_end) message.on_end(error == nullptr);
    } catch (...) {
      failure = std::current_exception();  // fails this message, not the group
    }
    // Frees the tensors before the work is done.
    message.on_end = nullptr;
    message.memory.reset();
    message.borrowed = nullptr;
    memory = nullptr;
    aside = nullptr;
    // The receiver may be taking the tensor too: the exchange gives it to one of us.
    if (is_held && error != nullptr) delete envelope->memory.exchange(nullptr);
    work->finish(failure, failure == nullptr ? source : -1);
  }
  // Whether `later` must not begin before this one has. Sends to one peer share a ring; recvs that
  // could take the same message take it in the order of their calls.
  bool precedes(const Transfer& later) const {
    const Message& other = later.message;
    if (message.is_send != other.is_send) return false;
    const bool same_peer = message.peer == other.peer;
    if (message.is_send) return same_peer;
    // A later recv from any source may begin: match() skips the sources that are claimed.
    return (same_peer || message.peer == kAnySource) && message.tag == other.tag;
  }
};

PointToPoint::PointToPoint(std::shared_ptr<Segment> segment, size_t committed, size_t reserved,
                           Exchange& exchange, const Heap& heap, bool zero_copy,
                           std::shared_ptr<AbortSwitch> abort)
    : segment_(std::move(segment)),
      exchange_(exchange),
      heap_(heap),
      zero_copy_(zero_copy),
      abort_(std::move(abort)),
      rings_(segment_, committed, reserved, exchange.rank(), exchange.size()),
      asides_(rings_),
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
  rings_.bell_of(exchange_.rank()).ring();
  if (thread_.joinable()) thread_.join();
  fail_all(std::make_exception_ptr(CommError(
      concat("group ", exchange_.options().name, " was destroyed with messages under way"))));
}

void PointToPoint::wake_all() {
  for (int rank = 0; rank < exchange_.size(); ++rank) rings_.bell_of(rank).ring();
}

WorkPtr PointToPoint::start(Message message, bool background) {
  auto transfer = std::make_shared<Transfer>();
  transfer->deadline = Clock::now() + message.timeout;
  transfer->message = std::move(message);
  transfer->work = std::make_shared<PendingWork>(abort_);
  try {
    exchange_.check_aborted();
  } catch (...) {
    transfer->end(std::current_exception());
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    transfers_.push_back(transfer);
    if (background && !thread_.joinable()) {
      thread_ = std::thread([this] { drive([] { return false; }); });
    }
  }
  if (background) {
    rings_.bell_of(exchange_.rank()).ring();
  } else {
    drive([&] { return transfer->is_done; });
    transfer->work->wait();
  }
  return transfer->work;
}

// Moves all transfers, not only the caller's, until `is_over()` (called under the lock) or stop_.
void PointToPoint::drive(const std::function<bool()>& is_over) {
  const c10::NoGradGuard no_grad;
  bool is_finished = false;
  const auto step = [&] {
    const std::lock_guard lock(mutex_);
    const bool has_moved = !is_over() && advance_all();  // another thread may have ended it
    is_finished = is_over() || stop_;
    return has_moved || is_finished;
  };
  for (int idle = 0; !is_finished;) {
    if (step()) {
      idle = 0;
    } else if (++idle < kSpins) {
      spin_pause();
    } else if (!rings_.bell_of(exchange_.rank()).sleep(step, kSlice)) {
      const std::lock_guard lock(mutex_);
      look_for_losses();
    }
  }
}

// A round, then the end of what is done. True when anything moved. An error fails all transfers.
bool PointToPoint::advance_all() {
  bool has_moved = false;
  try {
    has_moved = advance_round();
  } catch (const std::exception& error) {
    exchange_.abort(error.what());  // no effect when the group was aborted before
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

// Moves each transfer as far as it goes now, in the order of their calls.
bool PointToPoint::advance_round() {
  waiting_.clear();
  bool has_moved = false;
  for (const TransferPtr& transfer : transfers_) {
    const auto precedes = [&](const Transfer* earlier) { return earlier->precedes(*transfer); };
    if (!transfer->has_begun() && std::ranges::any_of(waiting_, precedes)) continue;
    has_moved |= transfer->message.is_send ? advance_send(*transfer) : advance_recv(*transfer);
    if (!transfer->has_begun()) waiting_.push_back(transfer.get());
  }
  try {
    has_moved |= asides_.advance();
    has_moved |= make_room();
  } catch (const std::bad_alloc&) {
    exchange_.fail("recv",
                   "not enough memory for the messages that have come and that no recv wants yet; "
                   "receive messages in about the order of their sends");
  }
  return has_moved;
}

bool PointToPoint::advance_send(Transfer& send) {
  const int peer = send.message.peer;
  const bool posts = send.envelope == nullptr;
  if (posts && !post(send)) return false;
  Envelope& envelope = *send.envelope;
  bool has_moved = posts;
  if (send.is_symmetric) {
    send.is_done = envelope.uses.load() != send.use;  // the receiver is through with the data
    return has_moved || send.is_done;
  }
  while (send.offset < send.size()) {
    const size_t number = send.offset / kPieceBytes;
    if (static_cast<uint32_t>(number) - envelope.read.load() >= MessageRings::kPieces) break;
    const size_t size = std::min(kPieceBytes, send.size() - send.offset);
    std::memcpy(rings_.piece_to(peer, envelope, number).data(),
                send.message.data.data() + send.offset, size);
    envelope.written.store(static_cast<uint32_t>(number) + 1);
    send.offset += size;
    has_moved = true;
  }
  send.is_done = send.offset == send.size();
  if (posts) envelope.is_ready.store(1);  // after its first pieces
  if (has_moved) rings_.bell_of(peer).ring();
  return has_moved;
}

// Fills in a free envelope; false when there is none. Symmetric ones are ready at once.
bool PointToPoint::post(Transfer& send) {
  const int peer = send.message.peer;
  const std::span<Envelope> ring = rings_.to(peer);
  const auto free =
      std::ranges::find_if(ring, [](const Envelope& e) { return e.is_ready.load() == 0; });
  if (free == ring.end()) return false;
  send.envelope = &*free;
  send.use = free->uses.load();
  const uint64_t place = zero_copy_ && send.size() > kPieceBytes
                             ? heap_.place_of(send.message.data.data(), send.size())
                             : Heap::kOrdinary;  // small: in a piece, so that nobody waits
  send.is_symmetric = place != Heap::kOrdinary;
  free->place = place;
  free->number = next_number_[peer]++;
  free->num_bytes = send.size();
  free->tag = send.message.tag;
  free->dtype = send.message.dtype;
  free->taken.store(Envelope::kFree);
  free->written.store(0);
  free->read.store(0);
  const uint32_t bit = 1u << (free - ring.begin());
  if (!send.is_symmetric && send.size() > 0 && (has_pieces_[peer] & bit) == 0) {
    rings_.commit_pieces(peer, *free);
    has_pieces_[peer] |= bit;
  }
  if (send.is_symmetric) {
    send.is_held = heap_.is_of_threads();
    if (send.is_held) free->memory.store(new at::Tensor(send.message.memory));
    free->is_ready.store(1);
    rings_.bell_of(peer).ring();
  }
  return true;
}

bool PointToPoint::advance_recv(Transfer& recv) {
  bool has_moved = false;
  if (!recv.has_begun()) {
    if (!match(recv)) return false;
    has_moved = true;
    recv.is_done = recv.message.borrowed != nullptr && lend(recv);
    if (recv.is_done) return true;
  }
  std::byte* out = recv.message.data.data();
  if (recv.aside != nullptr) {
    recv.is_done = recv.aside->is_whole();
    if (recv.is_done) std::ranges::copy(recv.aside->data, out);
    return has_moved || recv.is_done;
  }
  Envelope& envelope = *recv.envelope;
  if (recv.symmetric != nullptr) {
    std::memcpy(out, recv.symmetric, recv.size());
    recv.offset = recv.size();
  }
  for (;;) {
    const auto piece = rings_.next_piece(recv.source, envelope, recv.offset, recv.size());
    if (piece.empty()) break;
    std::memcpy(out + recv.offset, piece.data(), piece.size());
    MessageRings::next_piece_read(envelope, recv.offset);
    recv.offset += piece.size();
    has_moved = true;
  }
  if (recv.offset == recv.size()) {
    recv.is_done = true;
    recv.memory = nullptr;
    envelope.give_back(rings_.bell_of(recv.source));
    return true;
  }
  if (has_moved) rings_.bell_of(recv.source).ring();
  return has_moved;
}

// Among threads: takes over the tensor that holds a message's data. Null between processes.
std::unique_ptr<at::Tensor> PointToPoint::hold(int source, Envelope& envelope) {
  if (!heap_.is_of_threads()) return nullptr;
  std::unique_ptr<at::Tensor> memory(envelope.memory.exchange(nullptr));
  if (memory == nullptr) {
    exchange_.check_aborted();
    exchange_.fail("recv", exchange_.title_of(source) + " has given up");
  }
  return memory;
}

// Where a symmetric message's data lies, checked; empty when it comes in pieces.
std::span<std::byte> PointToPoint::data_of(int source, const Letter& letter, size_t alignment) {
  if (letter.place == Heap::kOrdinary) return {};
  const PeerBytes bytes{source, letter.place, letter.num_bytes, alignment};
  return span_of_peer(exchange_, heap_, bytes, "recv");
}

// True when the sender's memory was lent; the recv is done. False when it must be copied, into the
// tensor that was made here.
bool PointToPoint::lend(Transfer& recv) {
  Borrowed& borrowed = *recv.message.borrowed;
  // Loans end on any thread, but only the lock's holder makes new ones: no more are lent than seen.
  const auto is_lent = [](const Envelope& e) {
    return e.is_ready.load() != 0 && e.taken.load() == Envelope::kLent;
  };
  if (recv.symmetric == nullptr ||
      std::ranges::count_if(rings_.from(recv.source), is_lent) >= kMostLent) {
    borrowed.data = at::empty(borrowed.sizes, borrowed.options);
    recv.message.data = {static_cast<std::byte*>(borrowed.data.data_ptr()), recv.size()};
    return false;
  }
  recv.envelope->taken.store(Envelope::kLent);
  auto lease = std::make_shared<Lease>(segment_, heap_.shared_from_this(), std::move(recv.memory),
                                       recv.envelope, &rings_.bell_of(recv.source));
  borrowed.data = at::from_blob(
      recv.symmetric, borrowed.sizes, [lease = std::move(lease)](void*) {}, borrowed.options);
  return true;
}

// For each recv that waits behind a full ring: moves the oldest message there aside.
bool PointToPoint::make_room() {
  bool has_moved = false;
  for (const Transfer* transfer : waiting_) {
    if (transfer->message.is_send) continue;
    const int peer = transfer->message.peer;
    for (int rank = 0; rank < exchange_.size(); ++rank) {
      if ((peer != kAnySource && peer != rank) || rank == exchange_.rank()) continue;
      if (asides_.is_arriving(rank) || !MessageRings::is_full(rings_.from(rank))) continue;
      Envelope* const envelope = rings_.oldest(rank, std::nullopt);
      if (envelope == nullptr) continue;  // all eight are taken or lent
      move_aside(rank, *envelope);
      has_moved = true;
    }
  }
  return has_moved;
}

void PointToPoint::move_aside(int source, Envelope& envelope) {
  const Letter letter(envelope);
  const std::span<const std::byte> data = data_of(source, letter, 1);
  envelope.taken.store(Envelope::kTaken);
  if (letter.place == Heap::kOrdinary) {
    asides_.keep_arriving(source, letter, envelope);
    return;
  }
  const std::unique_ptr<at::Tensor> memory = hold(source, envelope);
  asides_.keep(source, letter, data);
  envelope.give_back(rings_.bell_of(source));
}

// Whether an earlier recv waits for the next message of `source` with the tag.
bool PointToPoint::is_claimed(int source, int tag) const {
  return std::ranges::any_of(waiting_, [&](const Transfer* earlier) {
    const Message& message = earlier->message;
    return !message.is_send && message.peer == source && message.tag == tag;
  });
}

// For a timeout's text: what keeps a send from being posted; "" when nothing does.
std::string PointToPoint::obstacle(const Transfer& transfer) const {
  const Message& message = transfer.message;
  if (!message.is_send || transfer.has_begun()) return "";
  if (!MessageRings::is_full(rings_.to(message.peer))) return "";
  return concat("; ", kEnvelopes, " earlier messages to ", exchange_.title_of(message.peer),
                " wait to be received, and no more can wait until it receives");
}

// Takes the oldest message with the tag from the wanted rank. For any source: from the first rank
// that has one, starting behind the last one served, so that none starves.
bool PointToPoint::match(Transfer& recv) {
  const Message& message = recv.message;
  const int size = exchange_.size();
  for (int i = 0; i < (message.peer == kAnySource ? size : 1) && !recv.has_begun(); ++i) {
    recv.source = message.peer == kAnySource ? (next_source_ + i) % size : message.peer;
    if (message.peer == kAnySource && is_claimed(recv.source, message.tag)) continue;
    // Messages moved aside are older than all in the ring that nobody has taken.
    recv.aside = asides_.take(recv.source, message.tag);
    if (recv.aside == nullptr) recv.envelope = rings_.oldest(recv.source, message.tag);
  }
  if (!recv.has_begun()) {
    recv.source = -1;
    return false;
  }
  next_source_ = (recv.source + 1) % size;
  if (recv.aside != nullptr) {
    check_letter(recv.aside->letter, recv);
    return true;
  }
  recv.envelope->taken.store(Envelope::kTaken);
  const Letter letter(*recv.envelope);
  check_letter(letter, recv);
  const auto dtype = static_cast<c10::ScalarType>(message.dtype);
  const bool is_borrowed = message.borrowed != nullptr;
  recv.symmetric = data_of(recv.source, letter, is_borrowed ? c10::elementSize(dtype) : 1).data();
  if (recv.symmetric != nullptr) recv.memory = hold(recv.source, *recv.envelope);
  return true;
}

void PointToPoint::check_letter(const Letter& letter, const Transfer& recv) {
  const Message& message = recv.message;
  if (letter.num_bytes == recv.size() && letter.dtype == message.dtype) return;
  exchange_.fail("recv", concat(exchange_.title_of(recv.source), " sends ",
                                text_of(name_of(letter.dtype), letter.num_bytes, message.tag), ", ",
                                exchange_.title_of(exchange_.rank()), " expects ",
                                text_of(name_of(message.dtype), recv.size(), message.tag)));
}

// Fails all transfers when the group was aborted, or when one of them has lost its peer or is late.
void PointToPoint::look_for_losses() {
  std::vector<std::string> absences;
  for (int rank = 0; rank < exchange_.size(); ++rank)
    absences.push_back(rank == exchange_.rank() ? "" : exchange_.absence_of(rank));
  // Absences first, messages second: a peer may send and then leave, never the other way round.
  if (transfers_.empty() || advance_all()) return;
  try {
    exchange_.check_aborted();
    for (const TransferPtr& transfer : transfers_) {
      const Message& message = transfer->message;
      const char* operation = message.is_send ? "send" : "recv";
      const int peer = transfer->source >= 0 ? transfer->source : message.peer;
      std::string absence;
      // From any source: fails once somebody has died, but lets ranks leave until none is left.
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
                             transfer->envelope->taken.load() == Envelope::kLent;
        const std::string who = peer == kAnySource ? "any rank" : exchange_.title_of(peer);
        exchange_.fail(operation,
                       concat("timed out after ", message.timeout.count() / 1000.0,
                              " s waiting for ", who, ", tag ", shown_tag(message.tag),
                              is_lent ? ", which it has borrowed" : "", obstacle(*transfer)));
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
  asides_.clear();
}

}  // namespace trireme::comm
