// One copy of a shard: its pieces, and how far every worker is. A deterministic state machine: the
// same events in the same order give the same bits on every copy.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/server/link/frame.h"
#include "trireme/parallel/server/state/consistency.h"
#include "trireme/parallel/server/state/key_ranges.h"
#include "trireme/parallel/server/state/push_sums.h"

namespace trireme::parallel {

// The `part` of a kEvent frame.
enum class EventKind : uint16_t {
  kAdvance = 1,  // the worker joins, or has finished `step`; step -1: as if it had finished the
                 // latest step that all others have finished in some piece
  kLeave,        // this incarnation of the worker leaves
  kPush,         // gradients of `piece` in `step`; in rounds: what it has learned
  kAway,         // rounds: nobody waits for the worker; step 1: from now on, 0: not any more
  kClose,        // rounds: of the head, when the grace of the round of `piece` is over; step: the
                 // version that it ends
};

struct Member {
  uint32_t incarnation = 0;
  int64_t base = 0;  // the step that its last kAdvance set
};

class ShardState {
 public:
  // pieces: of the whole run; only those of `shard` are made
  // Throws: ConfigError if `make` returns a piece of another shape
  ShardState(std::span<const Piece> pieces, int64_t shard, Consistency consistency,
             const MakePiece& make);

  enum class Verdict {
    kNew,
    kDuplicate,  // applied already
    kStranger,   // the worker, or this incarnation of it, is not in the run
  };
  // Throws: ConfigError if no worker sends such an event
  Verdict judge(const Frame& event) const;
  // event: judged kNew; its sequence is sequence() + 1
  void apply(const Frame& event);

  // Rounds: pieces with a quorum that only wait for the end of their grace, by version.
  std::map<uint32_t, int64_t> in_grace() const;
  Frame closing(uint32_t piece) const;  // the event that ends such a piece's round
  // The staleness of pushes that have changed weights since the last call.
  std::vector<int64_t> take_staleness() { return std::exchange(staleness_, {}); }
  bool has_rounds() const { return consistency_.has_rounds(); }
  std::chrono::milliseconds grace() const { return consistency_.grace; }
  // The workers with a part in the piece's last change.
  int64_t num_combined(uint32_t piece) const { return find(piece).num_combined; }
  // Whether a push of the worker is in the round under way.
  bool is_waiting(uint32_t piece, uint32_t worker) const;
  int64_t sequence() const { return sequence_; }  // of the last event

  const std::map<uint32_t, Member>& members() const { return members_; }
  // One kLeave event for each member that is not in `workers` (number -> incarnation).
  std::vector<Frame> departures(const std::map<uint32_t, uint32_t>& workers) const;

  // Throws: ConfigError if this shard lacks the piece, the piece lacks the rows, or the step is out
  //         of bounds
  void check_pull(const Frame& pull) const;
  // Whether `worker` may pull the piece for `step`: it has pushed the piece in the previous step,
  // and no other worker is too far behind. In rounds: the round from whose weights it has pushed
  // is over. Step 0: always.
  // Throws: ConfigError if this shard lacks the piece
  bool may_pull(uint32_t worker, uint32_t piece, int64_t step) const;
  // Number of steps by which `worker`, about to begin `step`, is ahead of the slowest other worker.
  int64_t steps_ahead(uint32_t worker, uint32_t piece, int64_t step) const;
  // A copy of the weights, which later updates do not change.
  at::Tensor weights(uint32_t piece);
  // The bytes of the given rows of a piece, in that order.
  // Throws: ConfigError unless the rows ascend within the piece
  at::Tensor rows(uint32_t piece, std::span<const int64_t> rows) const;
  int64_t version(uint32_t piece) const { return find(piece).version; }  // updates so far
  // A copy of the rows that a kPullState frame requests; empty if the optimizer has no such tensor.
  // Throws: ConfigError if this shard lacks the piece, or the piece lacks the rows
  std::optional<at::Tensor> state(const Frame& pull) const;

  // kSnapshot frames from which load() restores this state. They share no memory with it.
  std::vector<Frame> snapshot() const;
  // Returns whether this was the last part.
  // Throws: ConfigError if it is not part of a snapshot of this shard
  bool load(const Frame& part);

 private:
  struct Held {  // a piece
    Piece piece{};
    int64_t index = 0;
    at::Tensor weights{};
    std::unique_ptr<PieceUpdate> update{};
    int64_t version = 0;
    std::map<uint32_t, int64_t> finished{};  // worker -> last step pushed
    // Synchronous: pushes of steps that some worker has not finished, in the order of the workers.
    // Rounds: those of the round under way.
    std::map<int64_t, std::map<std::pair<uint32_t, uint32_t>, Frame>> waiting{};
    at::Tensor published{};  // copy of this version of the weights
    // Rounds: worker -> the version that its last push is in; until then, that at which it joined.
    std::map<uint32_t, int64_t> combined{};
    int64_t num_combined = 0;
  };
  const Held& find(uint32_t piece) const;
  Held& find(uint32_t piece);
  void check_push(const Held& held, const Frame& event) const;
  // The last finished step of the slowest worker other than `except`; empty if there is none.
  std::optional<int64_t> slowest(const Held& held, std::optional<uint32_t> except) const;
  void advance(const Frame& event);
  void complete_steps(Held& held);
  void check_difference(const Held& held, const Frame& event) const;
  enum class Round { kOpen, kHasQuorum, kHasAll };
  Round round_of(const Held& held) const;
  void end_if_due(Held& held);
  void end_round(Held& held);
  // The version from which the worker's push in the round under way counts: that of the last one.
  static std::optional<int64_t> waiting_base(const Held& held, uint32_t worker);
  void update(Held& held, std::span<const Frame* const> pushes);
  void load_members(const Frame& part);
  void load_piece(const Frame& part);

  int64_t shard_;
  Consistency consistency_;
  std::map<uint32_t, Held> held_;
  std::map<uint32_t, Member> members_;
  int64_t sequence_ = 0;
  int64_t highest_ = 0;  // highest step that any worker has finished
  std::set<uint32_t> away_;
  std::vector<int64_t> staleness_;
};

}  // namespace trireme::parallel
