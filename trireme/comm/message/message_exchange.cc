#include "trireme/comm/message/message_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <c10/util/Exception.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/reduce_kernel.h"
#include "trireme/comm/sized_message.h"

namespace trireme::comm {

// A collective begins with a meeting: each rank tells every other which call it makes and how many
// bytes follow. Without it a wrong call would be data in the wrong place or a wait without end.
// Receives are posted before sends are waited for, so no order of ranks can block. A failure is
// kept, told to the peers by a word in the channel, and only then are the connections closed: a
// peer that sees them break looks for the word. in_flight_ lets abort() cancel the waits of other
// threads. A message between two ranks is a head, which matches by tag, and a body, which matches
// by number, so that a recv from any source takes the body of the sender that it has found. A sized
// message is a body alone, which matches by tag: its recv is posted at once.

namespace {

using Clock = std::chrono::steady_clock;

// Tags. Collectives use two. The other bits tell a message's head from its data, and kSizedTag,
// below them, what has no head.
constexpr int kMeetTag = 0;
constexpr int kDataTag = 1;
constexpr int kHeadTag = 1 << 29;
constexpr int kBodyTag = 1 << 30;
static_assert(kSizedTag < kHeadTag);

// Sent before data.
struct Note {
  char operation[24];
  uint64_t sequence;
  int64_t elements;
  uint64_t block_sizes;
  uint64_t num_bytes;  // of the data that follows for the reader
  int32_t dtype, reduce_op, root, has_bytes;
  uint64_t reserved[3];
};
static_assert(sizeof(Note) == 96);

Note note_of(const Call& call, uint64_t sequence) {
  Note note{};
  std::strncpy(note.operation, call.operation, sizeof(note.operation) - 1);
  note.sequence = sequence;
  note.elements = call.elements;
  note.block_sizes = call.block_sizes;
  note.dtype = call.dtype;
  note.reduce_op = call.reduce_op;
  note.root = call.root;
  return note;
}

bool is_same_call(const Note& a, const Note& b) {
  return std::strcmp(a.operation, b.operation) == 0 && a.elements == b.elements &&
         a.block_sizes == b.block_sizes && a.dtype == b.dtype && a.reduce_op == b.reduce_op &&
         a.root == b.root;
}

// The result points to the note's operation text.
Call call_of(const Note& note) {
  return {note.operation, note.dtype, note.reduce_op, note.root, note.elements, note.block_sizes};
}

// For a note from a peer: its text may lack an end and contain control characters.
void make_printable(Note& note) {
  constexpr size_t kMost = sizeof(note.operation) - 1;
  note.operation[kMost] = '\0';
  const std::string text = shown(note.operation, kMost);
  std::memcpy(note.operation, text.data(), text.size());
}

}  // namespace

std::string words_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text =
      torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

MessageExchange::MessageExchange(std::unique_ptr<MessageChannel> channel, std::string name,
                                 std::chrono::milliseconds timeout)
    : channel_(std::move(channel)),
      name_(std::move(name)),
      timeout_(timeout),
      sent_(channel_->size()) {}

void MessageExchange::count_waits(std::shared_ptr<WaitSums> waits, std::vector<int> world_ranks) {
  TRIREME_ASSERT(static_cast<int>(world_ranks.size()) == channel_->size(), "a group of ",
                 channel_->size(), " with ", world_ranks.size(), " ranks of the world");
  waits_ = std::move(waits);
  world_ranks_ = std::move(world_ranks);
}

MessageExchange::Scope MessageExchange::scope_of(const Call& call, const std::string& which,
                                                 std::chrono::milliseconds timeout) {
  const Scope scope{concat(to_string(call), " ", which), Clock::now(),
                    timeout.count() > 0 ? timeout : timeout_};
  if (const std::string reason = failure(); !reason.empty()) {
    throw CommError(concat(where(scope), reason));
  }
  return scope;
}

std::string MessageExchange::where(const Scope& scope) const {
  return concat(scope.what, " of group ", name_, " (rank ", channel_->rank(), " of ",
                channel_->size(), ", ", channel_->transport(), "): ");
}

std::string MessageExchange::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void MessageExchange::abort(const std::string& reason, bool leaves_word) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = reason;
  }
  // The word comes first, so that a peer that sees the connections break finds it.
  if (leaves_word) channel_->leave_word(reason);
  {
    const std::lock_guard lock(mutex_);
    for (ChannelMessage* message : in_flight_) message->cancel();
  }
  channel_->close();
}

void MessageExchange::fail(const Scope& scope, const std::string& reason) {
  abort(where(scope) + reason);
  throw CommError(where(scope) + reason);
}

ChannelMessagePtr MessageExchange::post(const Scope& scope, int peer,
                                        const std::function<ChannelMessagePtr()>& start) {
  try {
    return start();
  } catch (const std::exception& error) {
    if (const std::string reason = failure(); !reason.empty()) {
      throw CommError(where(scope) + reason);
    }
    const std::string word = channel_->word_left();
    fail(scope,
         concat("no connection to rank ", peer, ": ", word.empty() ? words_of(error) : word));
  }
}

void MessageExchange::wait(const Scope& scope, ChannelMessage& message, int peer) {
  const std::string who = peer == kAnySource ? "any rank" : concat("rank ", peer);
  {
    // Under the lock, so that either abort() finds the message or this call the failure.
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw CommError(where(scope) + failure_);
    in_flight_.insert(&message);
  }
  const auto done = [&] {
    const std::lock_guard lock(mutex_);
    in_flight_.erase(&message);
    return failure_;
  };
  // Rounded up, so that a wait that ends is past the timeout.
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(scope.start + scope.timeout - Clock::now());
  try {
    message.wait(std::max(left, std::chrono::milliseconds(1)));
    done();
  } catch (const std::exception& error) {
    // The nearest reason first: this rank's own, then a peer's word, then the clock.
    if (const std::string reason = done(); !reason.empty()) {
      throw CommError(where(scope) + reason);
    }
    const auto elapsed = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - scope.start);
    if (const std::string word = channel_->word_left(); !word.empty()) {
      fail(scope, concat("a peer gave up: ", word));
    }
    if (elapsed >= scope.timeout) {
      fail(scope, concat("timed out after ", in_seconds(elapsed), " s waiting for ", who));
    }
    fail(scope, concat("lost ", who, " after ", in_seconds(elapsed), " s: ", channel_->transport(),
                       " says: ", words_of(error)));
  }
}

MessageExchange::Scope MessageExchange::meet(const Call& call, std::chrono::milliseconds timeout,
                                             std::span<const ConstBlock> to,
                                             std::span<const Block> from) {
  const Scope scope = scope_of(call, concat("#", ++sequence_), timeout);
  const int rank = channel_->rank();
  const int size = channel_->size();
  // A note per peer, since the bytes that follow may differ by peer.
  std::vector<Note> mine(size, note_of(call, sequence_));
  std::vector<Note> theirs(size);
  std::vector<ChannelMessagePtr> arriving(size);
  std::vector<ChannelMessagePtr> leaving(size);
  for (int peer = 0; peer < size; ++peer) {
    if (!to.empty()) mine[peer].has_bytes = 1;
    if (!to.empty()) mine[peer].num_bytes = to[peer].num_bytes;
    if (peer == rank) continue;
    arriving[peer] = post(
        scope, peer, [&] { return channel_->recv(&theirs[peer], sizeof(Note), peer, kMeetTag); });
    leaving[peer] = post(scope, peer,
                         [&] { return channel_->send(&mine[peer], sizeof(Note), peer, kMeetTag); });
  }
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const auto begin = waits_ ? Clock::now() : Clock::time_point();
    wait(scope, *arriving[peer], peer);
    if (waits_) waits_->add(name_, world_ranks_[static_cast<size_t>(peer)], Clock::now() - begin);
  }
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) wait(scope, *leaving[peer], peer);
  }
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    // Before they are compared or shown.
    make_printable(theirs[peer]);
    if (!is_same_call(mine[peer], theirs[peer])) {
      const bool is_first = rank < peer;
      fail(scope, concat("the ranks call different operations: rank ", std::min(rank, peer), " ",
                         to_string(call_of(is_first ? mine[peer] : theirs[peer])), ", rank ",
                         std::max(rank, peer), " ",
                         to_string(call_of(is_first ? theirs[peer] : mine[peer]))));
    }
    if (!from.empty() && theirs[peer].num_bytes != from[peer].num_bytes) {
      fail(scope, concat("rank ", peer, " sends ", theirs[peer].num_bytes, " bytes to rank ", rank,
                         ", which expects ", from[peer].num_bytes));
    }
  }
  return scope;
}

void MessageExchange::exchange(const Scope& scope, std::span<const ConstBlock> to,
                               std::span<const Block> from) {
  const int rank = channel_->rank();
  const int size = channel_->size();
  std::vector<std::pair<int, ChannelMessagePtr>> messages;
  // Nearest neighbours first, so that the ranks do not all begin with the same peer. All receives
  // before the first send: Gloo sends nothing until the peer has said that it receives, and that
  // word must not queue behind this rank's own data.
  for (int step = 1; step < size; ++step) {
    const int source = (rank + size - step) % size;
    if (source >= static_cast<int>(from.size()) || from[source].num_bytes == 0) continue;
    messages.emplace_back(source, post(scope, source, [&] {
                            return channel_->recv(from[source].data, from[source].num_bytes, source,
                                                  kDataTag);
                          }));
  }
  for (int step = 1; step < size; ++step) {
    const int target = (rank + step) % size;
    if (target >= static_cast<int>(to.size()) || to[target].num_bytes == 0) continue;
    messages.emplace_back(target, post(scope, target, [&] {
                            return channel_->send(to[target].data, to[target].num_bytes, target,
                                                  kDataTag);
                          }));
  }
  // All are under way before the first is waited for, so the slowest decides and not the sum.
  for (auto& [peer, message] : messages) wait(scope, *message, peer);
}

std::shared_ptr<MessageExchange::Pending> MessageExchange::begin_send(
    const Call& call, ConstBlock data, int peer, int tag, std::chrono::milliseconds timeout) {
  auto pending = std::make_shared<Pending>();
  if (is_sized(tag)) {
    pending->scope = scope_of(call, concat("to rank ", peer), timeout);
    pending->peer = peer;
    if (data.num_bytes == 0) return pending;
    pending->body = post(pending->scope, peer,
                         [&] { return channel_->send(data.data, data.num_bytes, peer, tag); });
    return pending;
  }
  uint64_t sequence;
  {
    // Counted for each receiver, which is what tells bodies apart.
    const std::lock_guard lock(mutex_);
    sequence = ++sent_[peer];
  }
  pending->scope = scope_of(call, concat("#", sequence, " to rank ", peer), timeout);
  pending->peer = peer;
  const auto note = std::make_shared<Note>(note_of(call, sequence));
  note->num_bytes = data.num_bytes;
  pending->note = note;
  pending->head = post(pending->scope, peer, [&] {
    return channel_->send(note.get(), sizeof(Note), peer, kHeadTag | tag);
  });
  if (data.num_bytes > 0) {
    // Tags have 31 bits. Two messages of one remainder are never under way together.
    pending->body = post(pending->scope, peer, [&] {
      return channel_->send(data.data, data.num_bytes, peer,
                            static_cast<int>(kBodyTag | sequence % kBodyTag));
    });
  }
  return pending;
}

void MessageExchange::finish_send(Pending& pending) {
  if (pending.head != nullptr) wait(pending.scope, *pending.head, pending.peer);
  if (pending.body != nullptr) wait(pending.scope, *pending.body, pending.peer);
}

std::shared_ptr<MessageExchange::Pending> MessageExchange::begin_recv(
    const Call& call, Block data, int peer, int tag, std::chrono::milliseconds timeout) {
  auto pending = std::make_shared<Pending>();
  pending->scope = scope_of(call, concat("with tag ", shown_tag(tag)), timeout);
  pending->peer = peer;
  if (is_sized(tag)) {
    if (data.num_bytes == 0) return pending;
    pending->body = post(pending->scope, peer,
                         [&] { return channel_->recv(data.data, data.num_bytes, peer, tag); });
    return pending;
  }
  // The channel writes into it until the wait ends, wherever the caller's stack is by then.
  const auto note = std::make_shared<Note>();
  pending->note = note;
  pending->head = post(pending->scope, peer, [&] {
    return channel_->recv(note.get(), sizeof(Note), peer, kHeadTag | tag);
  });
  return pending;
}

int MessageExchange::finish_recv(Pending& pending, const Call& call, Block data) {
  if (pending.head == nullptr) {
    if (pending.body != nullptr) wait(pending.scope, *pending.body, pending.peer);
    return pending.peer;
  }
  wait(pending.scope, *pending.head, pending.peer);
  Note note = *static_cast<const Note*>(pending.note.get());
  make_printable(note);
  const int source = pending.peer == kAnySource ? pending.head->source() : pending.peer;
  if (note.num_bytes != data.num_bytes || note.dtype != call.dtype) {
    fail(pending.scope, concat("rank ", source, " sends ", to_string(call_of(note)), ", rank ",
                               channel_->rank(), " expects ", to_string(call)));
  }
  if (data.num_bytes > 0) {
    pending.body = post(pending.scope, source, [&] {
      return channel_->recv(data.data, data.num_bytes, source,
                            static_cast<int>(kBodyTag | note.sequence % kBodyTag));
    });
    wait(pending.scope, *pending.body, source);
  }
  return source;
}

}  // namespace trireme::comm
