#include "trireme/comm/exchange.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <thread>

#include <c10/core/ScalarType.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/comm/reduce_kernel.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMagic = 0x31656d6572697254;         // "Trireme1"
constexpr auto kSlice = std::chrono::milliseconds(50);  // between looks at the peers while asleep

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  const timespec slice{0, std::chrono::nanoseconds(kSlice).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &slice, nullptr, 0);
}

// Wakes sleepers, if there are any. The store before and the load here are both sequentially
// consistent, as are the sleeper's increment and its look at the word: one of the two sees the
// other.
void wake(std::atomic<uint32_t>& word, const std::atomic<uint32_t>& waiters) {
  if (waiters.load() != 0) syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

int num_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace

struct alignas(64) Exchange::Header {
  std::atomic<uint64_t> magic;
  std::atomic<int32_t> size;
  std::atomic<uint32_t> aborted;  // 0 no, 1 the reason is being written, 2 yes
  char reason[480];
};

struct alignas(64) Exchange::Slot {
  std::atomic<uint32_t> phase;  // meets this rank has reached
  std::atomic<uint32_t> waiters;
  std::atomic<uint32_t> attached;
  std::atomic<uint32_t> left;
  // The call of the last two meets, by the phase's parity.
  struct alignas(64) Posted {
    char operation[24];
    int32_t dtype, reduce_op, root;
    int64_t elements;
    uint64_t block_sizes;
  } calls[2];
};

struct alignas(64) Exchange::Mailbox {
  std::atomic<uint32_t> written;  // pieces
  std::atomic<uint32_t> read;
  std::atomic<uint32_t> waiters;
  int32_t tag;
  uint64_t total_bytes;
};

std::string to_string(const Call& call) {
  std::string text =
      concat(call.operation, "(", c10::toString(static_cast<c10::ScalarType>(call.dtype)));
  if (call.elements >= 0) text += concat(", ", call.elements, " elements");
  if (call.block_sizes != 0) text += concat(" in blocks ", std::hex, call.block_sizes);
  if (call.reduce_op >= 0) text += concat(", ", name_of(static_cast<ReduceOp>(call.reduce_op)));
  if (call.root >= 0) text += concat(", root ", call.root);
  return text + ")";
}

size_t Exchange::segment_bytes(int size, const ExchangeOptions& options) {
  const auto ranks = static_cast<size_t>(size);
  return sizeof(Header) + ranks * (sizeof(Slot) + 2 * options.slot_bytes) +
         ranks * ranks * (sizeof(Mailbox) + options.mailbox_bytes) + 4096;
}

Exchange::Exchange(std::shared_ptr<Segment> segment, int rank, int size, ExchangeOptions options)
    : segment_(std::move(segment)), rank_(rank), size_(size), options_(std::move(options)) {
  static_assert(std::atomic<uint32_t>::is_always_lock_free);
  if (header().magic.load() == 0) {  // fresh memory; several ranks may find and fill it
    header().size.store(size);
    header().magic.store(kMagic);
  }
  TRIREME_CHECK(header().magic.load() == kMagic && header().size.load() == size,
                "the shared memory of group ", options_.name, " is not one of this version with ",
                size, " ranks");
  // With a core for each rank a peer is about to arrive; with fewer it needs this one's core.
  spins_ = num_cores() >= size ? 20000 : 50;
  slot(rank).attached.store(1);
}

Exchange::~Exchange() {
  slot(rank_).left.store(1);
  wake(slot(rank_).phase, slot(rank_).waiters);
}

Exchange::Header& Exchange::header() const { return *reinterpret_cast<Header*>(segment_->data()); }

Exchange::Slot& Exchange::slot(int rank) const {
  return *reinterpret_cast<Slot*>(segment_->data() + sizeof(Header) + rank * sizeof(Slot));
}

std::byte* Exchange::half(int rank, uint32_t phase) const {
  const size_t begin = round_up(sizeof(Header) + size_ * sizeof(Slot), 4096);
  return segment_->data() + begin + (2 * rank + phase % 2) * options_.slot_bytes;
}

Exchange::Mailbox& Exchange::mailbox(int from, int to) const {
  const size_t stride = sizeof(Mailbox) + options_.mailbox_bytes;
  return *reinterpret_cast<Mailbox*>(half(size_, 0) + (from * size_ + to) * stride);
}

void Exchange::begin(const Call& call, std::chrono::milliseconds timeout) {
  ++sequence_;
  call_ = call;
  timeout_ = timeout.count() > 0 ? timeout : options_.timeout;
  start_ = Clock::now();
  check_aborted();
}

std::byte* Exchange::mine() { return half(rank_, phase_); }

const std::byte* Exchange::posted(int rank) const { return half(rank, phase_ - 1); }

void Exchange::meet(const LossOf& loss_of) {
  auto& call = slot(rank_).calls[phase_ % 2];
  std::snprintf(call.operation, sizeof(call.operation), "%s", call_.operation);
  call.dtype = call_.dtype;
  call.reduce_op = call_.reduce_op;
  call.root = call_.root;
  call.elements = call_.elements;
  call.block_sizes = call_.block_sizes;
  const uint32_t target = ++phase_;
  slot(rank_).phase.store(target);
  wake(slot(rank_).phase, slot(rank_).waiters);
  for (int i = 1; i < size_; ++i) {
    const int peer = (rank_ + i) % size_;
    wait_for(
        slot(peer).phase, slot(peer).waiters, peer,
        [target](uint32_t phase) { return static_cast<int32_t>(phase - target) >= 0; },
        [&] { return loss_before(target, loss_of); });
  }
  check_calls();
}

// Why a rank that has not reached `target` never will; empty when all may. Looks at all of them:
// the one waited for may be alive and busy while another is dead.
std::string Exchange::loss_before(uint32_t target, const LossOf& loss_of) const {
  for (int i = 1; i < size_; ++i) {
    const int peer = (rank_ + i) % size_;
    std::string loss = absence_of(peer);
    if (loss.empty() && loss_of) loss = loss_of(peer);
    // Looked at after the loss: a rank that has left may have come before.
    const bool is_late = static_cast<int32_t>(slot(peer).phase.load() - target) < 0;
    if (is_late && !loss.empty()) return loss;
  }
  return "";
}

// Spins, then sleeps in slices; between slices asks `loss` whether the peer can still come.
void Exchange::wait_for(std::atomic<uint32_t>& word, std::atomic<uint32_t>& waiters, int peer,
                        const std::function<bool(uint32_t)>& done,
                        const std::function<std::string()>& loss) {
  for (int spin = 0; spin < spins_; ++spin) {
    if (done(word.load(std::memory_order_acquire))) return;
  }
  waiters.fetch_add(1);
  const struct Leave {
    std::atomic<uint32_t>& waiters;
    ~Leave() { waiters.fetch_sub(1); }
  } leave{waiters};
  for (;;) {
    const uint32_t seen = word.load();
    if (done(seen)) return;
    // Looked at before the word: a peer may come and go, but not go and then come.
    const std::string gone = loss();
    if (done(word.load())) return;
    check_aborted();
    if (!gone.empty()) fail(gone);
    if (Clock::now() - start_ > timeout_) {
      fail(concat("timed out after ", static_cast<double>(timeout_.count()) / 1000,
                  " s waiting for rank ", peer,
                  slot(peer).attached.load() != 0 ? "" : ", which never joined"));
    }
    futex_wait(word, seen);
  }
}

std::string Exchange::loss_of(int peer) const {
  return header().aborted.load() != 0 ? abort_reason() : absence_of(peer);
}

// Why `peer` will not come any more; empty when it may.
std::string Exchange::absence_of(int peer) const {
  if (slot(peer).left.load() != 0) return concat("rank ", peer, " has left the group");
  const bool died = slot(peer).attached.load() != 0 && !segment_->is_alive(peer);
  return died ? concat("rank ", peer, " died") : "";
}

void Exchange::check_calls() {
  const uint32_t parity = (phase_ - 1) % 2;
  const auto& own = slot(rank_).calls[parity];
  const auto matches = [&](const Slot::Posted& other) {
    return std::strcmp(own.operation, other.operation) == 0 && own.dtype == other.dtype &&
           own.reduce_op == other.reduce_op && own.root == other.root &&
           own.elements == other.elements && own.block_sizes == other.block_sizes;
  };
  const auto call_of = [](const Slot::Posted& posted) {
    return to_string({posted.operation, posted.dtype, posted.reduce_op, posted.root,
                      posted.elements, posted.block_sizes});
  };
  for (int peer = 0; peer < size_; ++peer) {
    const auto& other = slot(peer).calls[parity];
    if (matches(other)) continue;
    fail(concat("the ranks call different operations: rank ", std::min(rank_, peer), " ",
                call_of(rank_ < peer ? own : other), ", rank ", std::max(rank_, peer), " ",
                call_of(rank_ < peer ? other : own)));
  }
}

void Exchange::send(const std::byte* data, size_t num_bytes, int peer, int tag) {
  Mailbox& box = mailbox(rank_, peer);
  auto* space = reinterpret_cast<std::byte*>(&box + 1);
  size_t offset = 0;
  do {
    const size_t piece = std::min(options_.mailbox_bytes, num_bytes - offset);
    const uint32_t written = box.written.load();
    wait_for(
        box.read, box.waiters, peer, [written](uint32_t read) { return read == written; },
        [&] { return absence_of(peer); });
    box.tag = tag;
    box.total_bytes = num_bytes;
    if (piece > 0) std::memcpy(space, data + offset, piece);
    box.written.store(written + 1);
    wake(box.written, box.waiters);
    offset += piece;
  } while (offset < num_bytes);
}

void Exchange::recv(std::byte* data, size_t num_bytes, int peer, int tag) {
  Mailbox& box = mailbox(peer, rank_);
  const auto* space = reinterpret_cast<const std::byte*>(&box + 1);
  size_t offset = 0;
  do {
    const uint32_t read = box.read.load();
    wait_for(
        box.written, box.waiters, peer, [read](uint32_t written) { return written != read; },
        [&] { return absence_of(peer); });
    if (box.tag != tag || box.total_bytes != num_bytes) {
      fail(concat("rank ", peer, " sends ", box.total_bytes, " bytes with tag ", box.tag, ", rank ",
                  rank_, " expects ", num_bytes, " with tag ", tag));
    }
    const size_t piece = std::min(options_.mailbox_bytes, num_bytes - offset);
    if (piece > 0) std::memcpy(data + offset, space, piece);
    box.read.store(read + 1);
    wake(box.read, box.waiters);
    offset += piece;
  } while (offset < num_bytes);
}

std::string Exchange::where() const {
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%.1f", elapsed);
  return concat(call_.operation, " #", sequence_, " of group ", options_.name, " (", size_,
                " ranks), after ", seconds, " s: ");
}

void Exchange::fail(const std::string& reason) {
  abort(where() + reason);
  check_aborted();
  throw CommError(where() + reason);
}

void Exchange::abort(const std::string& reason) {
  uint32_t free = 0;
  if (header().aborted.compare_exchange_strong(free, 1)) {
    std::snprintf(header().reason, sizeof(header().reason), "%s", reason.c_str());
    header().aborted.store(2);
  }
  for (int rank = 0; rank < size_; ++rank) {
    wake(slot(rank).phase, slot(rank).waiters);
  }
}

std::string Exchange::abort_reason() const {
  // A peer is writing the reason, or died with it half written.
  for (int i = 0; i < 100 && header().aborted.load() != 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return header().aborted.load() == 2 ? std::string(header().reason)
                                      : concat("group ", options_.name, " was aborted by a peer");
}

void Exchange::check_aborted() const {
  if (header().aborted.load() != 0) throw CommError(abort_reason());
}

}  // namespace trireme::comm
