// The one synchronisation that every collective is built from. In a *meet* each rank posts, waits
// until all ranks have posted, and then reads what it wants of their posts. A post is a note of a
// few words and a slot of bytes. The note lies in the cache line that announces the post, so a
// small message costs one line per rank. exchange.cc describes the protocol.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/wait_sums.h"
#include "trireme/comm/shared/segment.h"

namespace trireme::comm {

struct ExchangeOptions {
  std::string name;       // of the group, for errors
  size_t slot_bytes = 0;  // of each slot; a rank has two
  std::chrono::milliseconds timeout{};
  std::vector<int> world_ranks = {};  // of the members, for errors; empty: 0, 1, 2, ...
  // Whether every rank on this host has a core of its own. If not, a waiting rank yields its core
  // at once.
  bool has_core_each = false;
  std::shared_ptr<WaitSums> waits = nullptr;  // counts whom this rank waits for; null: nobody does
};

// One rank's end. Thread safety: one thread at a time runs operations, from begin() to the last
// read of a post. Meanwhile any thread may call abort(), fail(operation, reason), check_aborted()
// and the questions about peers (loss_of() to title_of()).
class Exchange {
 public:
  using Note = std::array<uint64_t, 6>;

  // Uses the first segment_bytes() of `segment`'s data. The memory is zero, or another rank of the
  // same group has filled it in.
  // Throws: ConfigError when the memory is of another version or number of ranks
  Exchange(std::shared_ptr<Segment> segment, int rank, int size, ExchangeOptions options);
  // Tells the peers that this rank has left; never waits.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  static size_t segment_bytes(int size, const ExchangeOptions& options);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const ExchangeOptions& options() const { return options_; }
  // A random number that identifies the group; the first rank to come draws it.
  uint64_t nonce() const;
  void set_has_core_each(bool has) { options_.has_core_each = has; }
  // Starts the group's next operation. It may have any number of meets, the same on all ranks. They
  // share `timeout`, which runs from the first time this rank sleeps; zero means the options'.
  // Throws: CommError when the group was aborted
  void begin(const Call& call, std::chrono::milliseconds timeout);

  // The post that this rank makes with the next meet(). Fill it in before.
  Note& note() { return line(rank_, phase_).note; }
  std::byte* mine() { return slot(rank_, phase_); }
  // Posts, waits until every rank has posted, and checks that all are in the same call. Everything
  // a rank wrote before its meet() is visible to every rank that returns from it. Returns normally
  // once every rank has posted, even if the group was aborted meanwhile.
  // `loss_of`, when given, adds reasons why a rank will not come; it returns "" when the rank may.
  // Collective: every rank
  // Throws:     CommError when a peer died, left, is late or is in another call, or when the group
  //             was aborted; it is aborted afterwards
  using LossOf = std::function<std::string(int rank)>;
  void meet(const LossOf& loss_of = {});
  // Peers use this rank's memory in place until the operation ends. If a meet fails, it throws only
  // when they have come to theirs, or after five seconds: the caller may then free that memory.
  void lend() { is_lent_ = true; }
  // The post of `rank` for the last meet(). Valid until this rank calls the next meet().
  const Note& note_of(int rank) const { return line(rank, phase_ - 1).note; }
  const std::byte* posted(int rank) const { return slot(rank, phase_ - 1); }

  // Why `peer` will not come any more: the group was aborted, or the peer died or left. "" when it
  // may come.
  std::string loss_of(int peer) const;
  // The same without the abort: whether the peer itself died or left.
  std::string absence_of(int peer) const;
  bool has_joined(int peer) const;
  // "rank 1", or "rank 1 (world rank 5)" where the two differ.
  std::string title_of(int rank) const;

  // Kills the group: waiting ranks wake, and every later begin() on every rank throws CommError
  // with `reason`. The first reason stays.
  void abort(const std::string& reason);
  // Calls `wake` after each abort by this rank, for threads that sleep on other bells of the group.
  // Set before other threads use the exchange.
  void on_abort(std::function<void()> wake) { wake_others_ = std::move(wake); }
  // Throws: CommError when the group was aborted
  void check_aborted() const;
  // Aborts and throws CommError. The text names the operation and the group before `reason`. The
  // first form takes the operation from begin().
  [[noreturn]] void fail(const std::string& reason);
  [[noreturn]] void fail(const std::string& operation, const std::string& reason);

 private:
  struct Header;
  struct Rank;
  // One post. Only its rank writes it, the phase last.
  struct alignas(64) Line {
    std::atomic<uint32_t> phase;  // number of the meet, from 1
    uint64_t signature;           // hash of the call and of the operation's number
    Note note;
  };

  Header& header() const { return *header_; }
  Rank& peer(int rank) const;
  Line& line(int rank, uint32_t phase) const { return lines_[2 * rank + phase % 2]; }
  std::byte* slot(int rank, uint32_t phase) const {
    return slots_ + (2 * static_cast<size_t>(rank) + phase % 2) * options_.slot_bytes;
  }
  template <std::memory_order order>
  bool all_posted(uint32_t target) const {
    return first_missing<order>(target) < 0;
  }
  template <std::memory_order order>
  int first_missing(uint32_t target) const;
  int last_to_post(uint32_t target) const;
  void wait_for_posts(uint32_t target, const LossOf& loss_of);
  void let_peers_finish(uint32_t target) const;
  bool spin(uint32_t target);
  void sleep(uint32_t target, const LossOf& loss_of);
  std::string loss_before(uint32_t target, const LossOf& loss_of) const;
  void time_out(uint32_t target);
  [[noreturn]] void report_difference(int other);
  std::string abort_reason() const;

  std::shared_ptr<Segment> segment_;
  Header* header_;
  Rank* ranks_;
  Line* lines_;
  std::byte* slots_;
  int rank_;
  int size_;
  ExchangeOptions options_;
  uint32_t phase_ = 0;  // meets begun so far: the number of the last one
  Call call_;
  uint64_t signature_ = 0;
  uint64_t sequence_ = 0;  // number of the operation, from 1
  bool is_lent_ = false;   // in this operation
  std::chrono::milliseconds timeout_{};
  std::chrono::steady_clock::time_point start_;  // of this operation's first sleep; zero before
  std::function<void()> wake_others_;
  int missing_ = -1;  // the rank that the last look at the posts missed
};

}  // namespace trireme::comm
