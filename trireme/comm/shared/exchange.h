// The one synchronisation every collective is built from: each rank posts, all wait for all, each
// reads what it wants of the others. A post is a note of a few words, which travels in the cache
// line that says "I am here", and room for bytes behind it. There are two of each, used in turn: a
// rank posts into the one that nobody can still be reading.
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

#include "trireme/comm/call.h"
#include "trireme/comm/shared/bell.h"
#include "trireme/comm/shared/segment.h"

namespace trireme::comm {

struct ExchangeOptions {
  std::string name;       // of the group, for errors
  size_t slot_bytes = 0;  // room behind a note; a rank has two
  std::chrono::milliseconds timeout{};
  std::vector<int> world_ranks = {};  // of the members, for errors; empty: 0, 1, 2, ...
  // Whether each of the ranks that compete for the host's cores has one of its own; without,
  // waiting gives the core away at once.
  bool has_core_each = false;
};

// One rank's end. Thread safety: one thread at a time, but abort() and loss_of() may come from any.
class Exchange {
 public:
  using Note = std::array<uint64_t, 6>;

  // Its memory is the first segment_bytes() of `segment`'s data.
  Exchange(std::shared_ptr<Segment> segment, int rank, int size, ExchangeOptions options);
  // Tells the peers that this rank has left; never waits.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  static size_t segment_bytes(int size, const ExchangeOptions& options);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const ExchangeOptions& options() const { return options_; }
  // A number that no other group has, drawn by the first to come.
  uint64_t nonce() const;
  void set_has_core_each(bool has) { options_.has_core_each = has; }
  // Counts this group's operations; the same on all ranks when they call the same.
  void begin(const Call& call, std::chrono::milliseconds timeout);

  // What this rank posts with the next meet().
  Note& note() { return line(rank_, phase_).note; }
  std::byte* mine() { return slot(rank_, phase_); }
  // Waits until every rank has posted, and checks that all made the same call.
  // `loss_of`, when given, knows more of why a rank will not come; empty text when it may.
  // Throws: CommError: a peer died, left, is late, or called something else
  using LossOf = std::function<std::string(int rank)>;
  void meet(const LossOf& loss_of = {});
  // What `rank` posted for the last meet(); valid until this rank calls the next.
  const Note& note_of(int rank) const { return line(rank, phase_ - 1).note; }
  const std::byte* posted(int rank) const { return slot(rank, phase_ - 1); }

  // Why `peer` will not come any more: the group was aborted, or it died or left. Empty when it
  // may.
  std::string loss_of(int peer) const;
  // Why `peer` itself will not come; empty when it may.
  std::string absence_of(int peer) const;
  bool has_joined(int peer) const;
  // "rank 1", with its rank in the world where that is another.
  std::string title_of(int rank) const;

  // From now on every call on the group throws CommError with `reason`, here and on the peers. The
  // first reason stays.
  void abort(const std::string& reason);
  // Calls `wake` after each abort, so that others who sleep on the group's memory see it.
  void on_abort(std::function<void()> wake) { wake_others_ = std::move(wake); }
  // Throws: CommError when the group was aborted
  void check_aborted() const;
  // Aborts with `reason`, after the words that say which operation of which group failed, and
  // throws.
  [[noreturn]] void fail(const std::string& reason);
  [[noreturn]] void fail(const std::string& operation, const std::string& reason);

 private:
  struct Header;
  struct Rank;
  struct alignas(64) Line {
    std::atomic<uint32_t> phase;  // the meet it is posted for
    uint64_t signature;           // of the call
    Note note;
  };

  Header& header() const { return *header_; }
  Rank& peer(int rank) const;
  Line& line(int rank, uint32_t phase) const { return lines_[2 * rank + phase % 2]; }
  std::byte* slot(int rank, uint32_t phase) const {
    return slots_ + (2 * static_cast<size_t>(rank) + phase % 2) * options_.slot_bytes;
  }
  template <std::memory_order order>
  bool all_posted(uint32_t target) const;
  bool spin(uint32_t target) const;
  void sleep(uint32_t target, const LossOf& loss_of);
  std::string loss_before(uint32_t target, const LossOf& loss_of) const;
  [[noreturn]] void time_out(uint32_t target);
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
  uint32_t phase_ = 0;  // of the next meet()
  Call call_;
  uint64_t signature_ = 0;
  uint64_t sequence_ = 0;
  std::chrono::milliseconds timeout_{};
  std::chrono::steady_clock::time_point start_;  // of the first sleep of this operation
  std::function<void()> wake_others_;
};

}  // namespace trireme::comm
