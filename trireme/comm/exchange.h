// The one synchronisation everything is built from: each rank posts bytes, all wait for all, each
// reads what it wants of the others. One wait an exchange: a rank posts into the half of its slot
// that nobody can still be reading, because two exchanges ago everyone had finished with it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trireme/comm/segment.h"

namespace trireme::comm {

// What a rank says it is doing; compared with every peer's in each exchange.
struct Call {
  const char* operation = "";  // a literal; its text travels
  int dtype = 0;               // c10::ScalarType
  int reduce_op = -1;          // ReduceOp; -1: none
  int root = -1;
  int64_t elements = 0;      // -1: may differ by rank
  uint64_t block_sizes = 0;  // a hash of the sizes that all must agree on; 0: none
};
std::string to_string(const Call& call);

struct ExchangeOptions {
  std::string name;          // of the group, for errors
  size_t slot_bytes = 0;     // one half of a rank's slot
  size_t mailbox_bytes = 0;  // of each ordered pair of ranks
  std::chrono::milliseconds timeout{};
};

// One rank's end. Thread safety: one thread at a time, but abort() may come from any.
class Exchange {
 public:
  Exchange(std::shared_ptr<Segment> segment, int rank, int size, ExchangeOptions options);
  // Tells the peers that this rank has left; never waits.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  static size_t segment_bytes(int size, const ExchangeOptions& options);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const ExchangeOptions& options() const { return options_; }
  // Counts this group's operations; the same on all ranks when they call the same.
  void begin(const Call& call, std::chrono::milliseconds timeout);

  // Where this rank posts before the next meet().
  std::byte* mine();
  // Waits until every rank has posted, and checks that all made the same call.
  // `loss_of`, when given, knows more of why a rank will not come; empty text when it may.
  // Throws: CommError: a peer died, left, is late, or called something else
  using LossOf = std::function<std::string(int rank)>;
  void meet(const LossOf& loss_of = {});
  // What `rank` posted for the last meet(); valid until the second meet() after it begins.
  const std::byte* posted(int rank) const;

  // Point to point: `num_bytes` in pieces of a mailbox, with a header that is checked.
  void send(const std::byte* data, size_t num_bytes, int peer, int tag);
  void recv(std::byte* data, size_t num_bytes, int peer, int tag);

  // Why `peer` will not come any more: the group was aborted, or it died or left. Empty when it
  // may.
  std::string loss_of(int peer) const;

  // From now on every call on the group throws CommError with `reason`, here and on the peers. The
  // first reason stays.
  void abort(const std::string& reason);
  // Aborts with `reason`, after the words that say which operation of which group failed, and
  // throws.
  [[noreturn]] void fail(const std::string& reason);

 private:
  struct Header;
  struct Slot;
  struct Mailbox;

  Header& header() const;
  Slot& slot(int rank) const;
  std::byte* half(int rank, uint32_t phase) const;
  Mailbox& mailbox(int from, int to) const;
  void wait_for(std::atomic<uint32_t>& word, std::atomic<uint32_t>& waiters, int peer,
                const std::function<bool(uint32_t)>& done,
                const std::function<std::string()>& loss);
  std::string loss_before(uint32_t target, const LossOf& loss_of) const;
  std::string absence_of(int peer) const;
  void check_calls();
  void check_aborted() const;
  std::string abort_reason() const;
  std::string where() const;

  std::shared_ptr<Segment> segment_;
  int rank_;
  int size_;
  ExchangeOptions options_;
  uint32_t phase_ = 0;  // of the next meet()
  Call call_;
  uint64_t sequence_ = 0;
  std::chrono::milliseconds timeout_{};
  std::chrono::steady_clock::time_point start_;
  int spins_;
};

}  // namespace trireme::comm
