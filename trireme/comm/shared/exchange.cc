// Memory of a group of p ranks:
//
//   Header        magic, size, nonce    written by the first ranks to come
//                 aborted, reason       written by the first rank to abort
//                 rang                  written by the rank that rings because all have posted
//                 bell                  rung when all have posted, when a rank leaves, on abort
//   Line [p][2]   phase, signature, note
//   Rank [p]      attached, left; the running call, for error texts
//   slot [p][2]   slot_bytes each; they begin at a page
//
// A rank writes only its own Lines, Rank and slots; its peers read them. Meets are counted from 1,
// and meet m uses place (m - 1) % 2 of the two. Two ranks in meets 1 and 2:
//
//   rank A                                        rank B
//   fill note and slot 0
//   phase[A][0] = 1            --- release --->
//   wait for phase[B][0] == 1
//     :                                           fill note and slot 0
//     :                        <-- release ----   phase[B][0] = 1
//   acquire: B has posted                         acquire: A has posted
//   read B's post 1                               read A's post 1
//     :                                           fill note and slot 1
//     :                        <-- release ----   phase[B][1] = 2
//   fill note and slot 1                          wait for phase[A][1] == 2
//
// Two places are enough. B refills place 0 after meet 2. That meet needs A's second post, which A
// makes after it has read B's first. With one place B would overwrite post 1 while A reads it.
// So no rank is more than one meet ahead, `phase` is compared for equality, and it may wrap around.
//
// How a rank waits:
//
//   post --> spin --> sleep until the bell, or 50 ms --> look at posts and peers
//             |         ^                                 |          |        |
//             |         +------------ neither ------------+          |     aborted, peer lost,
//             |                                                      |     timed out: fail()
//             +------ all posted ------> compare signatures <--------+
//                                         |              |
//                                      return      another call: fail()
//
// Memory order
//   phase        The release pairs with the acquire in all_posted(). Whoever sees the phase sees
//                what its rank wrote before: signature, note, slot, Rank, symmetric tensors. A
//                relaxed load could return phase 1 with the note still empty.
//   phase and    Sequentially consistent between the one who posts and the one who sleeps. A poster
//   sleepers     stores its phase, then loads `sleepers`. A sleeper adds itself to `sleepers`, then
//                loads the phases. In the one order of these accesses the later of the two sees the
//                earlier. With release and acquire both could miss, and the sleeper would sleep on
//                until its slice ends. Spinning rings no bell, so acquire is enough there.
//   aborted      0 -> 1 -> 2. The exchange from 0 to 1 elects one writer of `reason`; the store of
//                2 publishes it.
//   rang         Stored before the bell rings, which the woken sleeper sees.
//   The rest is read seldom and has the default order.
//
// Other events that end a wait. Only a sleeping rank looks, at each ring and at least every 50 ms:
//   died         the peer had attached, and its lock on the segment is gone (segment.h)
//   left         the peer's ~Exchange has set `left`
//   timed out    `timeout` has passed since the operation's first sleep
//   aborted      by a peer, or by another thread of this rank
// A rank that finds a signature other than its own fails too. When two posts differ, every rank
// finds one that differs from its own, so every rank fails in the same meet. Every failure aborts
// the group: all ranks wake and throw the first reason.
#include "trireme/comm/shared/exchange.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>

#include <sched.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/numbers.h"
#include "trireme/comm/shared/heap.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMagic = 0x32656d6572697254;         // "Trireme2"
constexpr auto kSlice = std::chrono::milliseconds(50);  // longest sleep before a look at the peers
constexpr auto kGrace = std::chrono::seconds(5);        // for peers that use memory in place
// With a core per rank a peer usually arrives soon: sleeping would cost more than it saves.
constexpr int kSpins = 2000;
// With fewer cores a peer may be waiting for this one.
constexpr int kYields = 50;

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 32);
}

uint64_t signature_of(const Call& call, uint64_t sequence) {
  uint64_t name = 0;
  std::memcpy(&name, call.operation, strnlen(call.operation, sizeof(name)));
  const auto small = static_cast<uint64_t>(call.dtype & 0xff) << 48 |
                     static_cast<uint64_t>(call.reduce_op & 0xff) << 40 |
                     static_cast<uint32_t>(call.root);
  return mixed(mixed(mixed(mixed(mixed(sequence, name), strlen(call.operation)), small),
                     static_cast<uint64_t>(call.elements)),
               call.block_sizes);
}

}  // namespace

struct alignas(64) Exchange::Header {
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> nonce;
  std::atomic<int32_t> size;
  std::atomic<uint32_t> aborted;  // 0 no, 1 the reason is being written, 2 yes
  char reason[480];
  std::atomic<uint64_t> rang;  // the meet's number, and who rang the bell in it
  Bell bell;
};

// Kept out of Line, whose 64 bytes every meet reads.
struct alignas(64) Exchange::Rank {
  std::atomic<uint32_t> attached;
  std::atomic<uint32_t> left;
  // The running call. Plain words: begin() writes them and the next phase publishes them. Peers
  // read them only when signatures differ, and that ends the group.
  char operation[24];
  int32_t dtype, reduce_op, root;
  int64_t elements;
  uint64_t block_sizes;
};

size_t Exchange::segment_bytes(int size, const ExchangeOptions& options) {
  const auto ranks = static_cast<size_t>(size);
  return round_up(sizeof(Header) + ranks * (sizeof(Rank) + 2 * sizeof(Line)), 4096) +
         2 * ranks * options.slot_bytes;
}

Exchange::Exchange(std::shared_ptr<Segment> segment, int rank, int size, ExchangeOptions options)
    : segment_(std::move(segment)), rank_(rank), size_(size), options_(std::move(options)) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  std::byte* memory = segment_->data();
  header_ = reinterpret_cast<Header*>(memory);
  lines_ = reinterpret_cast<Line*>(memory + sizeof(Header));
  ranks_ = reinterpret_cast<Rank*>(lines_ + 2 * static_cast<ptrdiff_t>(size));
  slots_ = memory + segment_bytes(size, options_) - size_t{2} * size * options_.slot_bytes;
  // Fresh memory. Several ranks may find it so: they store the same values, and one nonce wins. The
  // magic comes last, so whoever sees it sees the rest.
  if (header().magic.load() == 0) {
    uint64_t fresh = 0;
    std::random_device device;
    // Never 0, which stands for a number that nobody has drawn.
    header().nonce.compare_exchange_strong(fresh, uint64_t{device()} << 32 | device() | 1);
    header().size.store(size);
    header().magic.store(kMagic);
  }
  TRIREME_CHECK(header().magic.load() == kMagic && header().size.load() == size,
                "the shared memory of group ", options_.name, " is not one of this version with ",
                size, " ranks");
  // From now on a missing lock means that this rank has died.
  peer(rank).attached.store(1);
}

Exchange::~Exchange() {
  // Before the lock goes, or this rank would be called dead.
  peer(rank_).left.store(1);
  header().bell.ring();
}

Exchange::Rank& Exchange::peer(int rank) const { return ranks_[rank]; }

uint64_t Exchange::nonce() const { return header().nonce.load(); }

std::string Exchange::title_of(int rank) const {
  const std::vector<int>& world = options_.world_ranks;
  const bool is_known = rank < static_cast<int>(world.size()) && world[rank] != rank;
  return concat("rank ", rank, is_known ? concat(" (world rank ", world[rank], ")") : "");
}

bool Exchange::has_joined(int peer_rank) const { return peer(peer_rank).attached.load() != 0; }

void Exchange::begin(const Call& call, std::chrono::milliseconds timeout) {
  ++sequence_;
  call_ = call;
  signature_ = signature_of(call, sequence_);
  timeout_ = timeout.count() > 0 ? timeout : options_.timeout;
  start_ = {};
  is_lent_ = false;
  Rank& self = peer(rank_);
  std::strncpy(self.operation, call.operation, sizeof(self.operation) - 1);
  self.dtype = call.dtype;
  self.reduce_op = call.reduce_op;
  self.root = call.root;
  self.elements = call.elements;
  self.block_sizes = call.block_sizes;
  check_aborted();
}

void Exchange::meet(const LossOf& loss_of) {
  Line& own = line(rank_, phase_);
  own.signature = signature_;
  const uint32_t target = ++phase_;
  own.phase.store(target);
  // The last to post wakes the others. In the order of all phases the last one sees the rest, so at
  // least one rank rings. Earlier posters see a gap and save the system call.
  Bell& bell = header().bell;
  if (bell.sleepers.load() != 0 && all_posted<std::memory_order_seq_cst>(target)) {
    header().rang.store(uint64_t{target} << 32 | static_cast<uint32_t>(rank_));
    bell.ring();
  }
  try {
    wait_for_posts(target, loss_of);
  } catch (...) {
    if (is_lent_) let_peers_finish(target);
    throw;
  }
}

void Exchange::wait_for_posts(uint32_t target, const LossOf& loss_of) {
  missing_ = first_missing<std::memory_order_acquire>(target);
  if (missing_ >= 0) {
    const auto begin = options_.waits ? Clock::now() : Clock::time_point();
    if (!spin(target)) sleep(target, loss_of);
    if (options_.waits) {
      const int last = last_to_post(target);
      const std::vector<int>& world = options_.world_ranks;
      const int world_rank = last < static_cast<int>(world.size()) ? world[last] : last;
      options_.waits->add(options_.name, world_rank, Clock::now() - begin);
    }
  }
  for (int other = 0; other < size_; ++other) {
    if (line(other, target - 1).signature != signature_) report_difference(other);
  }
}

// A peer that has not posted `target` is between this meet and the one before, where it may use
// this rank's memory.
void Exchange::let_peers_finish(uint32_t target) const {
  const auto end = Clock::now() + kGrace;
  for (int other = 0; other < size_; ++other) {
    const auto uses = [&] {
      return line(other, target - 1).phase.load() != target && absence_of(other).empty();
    };
    while (uses() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A rank that has not posted, or -1. Starts behind this rank, so that the ranks do not all read the
// same line first.
template <std::memory_order order>
int Exchange::first_missing(uint32_t target) const {
  for (int i = 1; i < size_; ++i) {
    const int other = rank_ + i < size_ ? rank_ + i : rank_ + i - size_;
    if (line(other, target - 1).phase.load(order) != target) return other;
  }
  return -1;
}

// Who has ended this rank's wait, once all have posted. A sleeper was woken by the last to post,
// who wrote its number before it rang. A spinner saw who was missing last. Nobody writes `rang`
// again before this rank posts the next meet.
int Exchange::last_to_post(uint32_t target) const {
  const uint64_t rang = header().rang.load();
  const auto rank = static_cast<int>(rang & 0x7fffffff);
  const bool is_of_this_meet = rang >> 32 == target && rank < size_ && rank != rank_;
  return is_of_this_meet ? rank : missing_;
}

bool Exchange::spin(uint32_t target) {
  for (int i = options_.has_core_each ? kSpins : kYields; i > 0; --i) {
    if (options_.has_core_each) {
      spin_pause();
    } else {
      sched_yield();
    }
    const int missing = first_missing<std::memory_order_acquire>(target);
    if (missing < 0) return true;
    missing_ = missing;
  }
  return false;
}

// Sleeps in slices. After each it looks whether the missing ranks can still come.
void Exchange::sleep(uint32_t target, const LossOf& loss_of) {
  // A call that never sleeps asks no clock, unless its waits are counted.
  if (start_ == Clock::time_point()) start_ = Clock::now();
  const auto done = [&] {
    return all_posted<std::memory_order_seq_cst>(target) || header().aborted.load() != 0;
  };
  for (;;) {
    header().bell.sleep(done, kSlice);
    // Losses first, posts second: a peer may post and then leave, never the other way round.
    const std::string loss = loss_before(target, loss_of);
    // All posts are there: the meet succeeds, even in a group that was aborted since.
    if (all_posted<std::memory_order_acquire>(target)) return;
    check_aborted();
    if (!loss.empty()) fail(loss);
    if (Clock::now() - start_ > timeout_) time_out(target);
  }
}

// Why some rank that has not posted `target` never will; "" when all may. Looks at all of them: the
// first may be alive and busy while the second is dead.
std::string Exchange::loss_before(uint32_t target, const LossOf& loss_of) const {
  for (int i = 1; i < size_; ++i) {
    const int other = (rank_ + i) % size_;
    if (line(other, target - 1).phase.load() == target) continue;
    std::string loss = absence_of(other);
    if (loss.empty() && loss_of) loss = loss_of(other);
    // Once more after the loss was seen: the rank may have posted before it left.
    const bool is_late = line(other, target - 1).phase.load() != target;
    if (is_late && !loss.empty()) return loss;
  }
  return "";
}

void Exchange::time_out(uint32_t target) {
  std::string late;
  for (int other = 0; other < size_; ++other) {
    if (other == rank_ || line(other, target - 1).phase.load() == target) continue;
    late += concat(late.empty() ? "" : ", ", title_of(other),
                   has_joined(other) ? "" : ", which never joined");
  }
  if (late.empty()) return;  // the last one has posted since
  fail(concat("timed out after ", static_cast<double>(timeout_.count()) / 1000, " s waiting for ",
              late));
}

void Exchange::report_difference(int other) {
  const auto call_of = [](const Rank& rank) {
    const std::string operation = text_of_peer(rank.operation);
    return to_string({operation.c_str(), read_once(rank.dtype), read_once(rank.reduce_op),
                      read_once(rank.root), read_once(rank.elements), read_once(rank.block_sizes)});
  };
  const int first = std::min(rank_, other);
  const int second = std::max(rank_, other);
  fail(concat("the ranks call different operations: ", title_of(first), " ", call_of(peer(first)),
              ", ", title_of(second), " ", call_of(peer(second))));
}

std::string Exchange::loss_of(int peer) const {
  return header().aborted.load() != 0 ? abort_reason() : absence_of(peer);
}

std::string Exchange::absence_of(int other) const {
  if (peer(other).left.load() != 0) return title_of(other) + " has left the group";
  if (!has_joined(other) || segment_->is_alive(other)) return "";
  // Once more: a peer that leaves says so before its lock goes.
  if (peer(other).left.load() != 0) return title_of(other) + " has left the group";
  return title_of(other) + " died";
}

void Exchange::fail(const std::string& reason) {
  const auto start = start_ == Clock::time_point() ? Clock::now() : start_;
  const double elapsed = seconds_since(start);
  fail(concat(call_.operation, " #", sequence_), format("after %.1f s: ", elapsed) + reason);
}

void Exchange::fail(const std::string& operation, const std::string& reason) {
  const std::string text =
      concat(operation, " of group ", options_.name, " (", size_, " ranks), ", reason);
  abort(text);
  // A peer may have been first. Its reason counts then.
  check_aborted();
  throw CommError(text);
}

void Exchange::abort(const std::string& reason) {
  uint32_t free = 0;
  if (header().aborted.compare_exchange_strong(free, 1)) {
    std::snprintf(header().reason, sizeof(header().reason), "%s", reason.c_str());
    header().aborted.store(2);
  }
  header().bell.ring();
  // Threads in messages sleep on other bells.
  if (wake_others_) wake_others_();
}

std::string Exchange::abort_reason() const {
  // At 1 a peer is writing the reason, or died while it did. 100 ms tell the two apart.
  for (int i = 0; i < 100 && header().aborted.load() != 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return header().aborted.load() == 2 ? text_of_peer(header().reason)
                                      : concat("group ", options_.name, " was aborted by a peer");
}

void Exchange::check_aborted() const {
  if (header().aborted.load() != 0) throw CommError(abort_reason());
}

}  // namespace trireme::comm
