// One copy of a shard: its pieces, and how far every worker is. A deterministic state machine: the
// same events in the same order give the same bits on every copy.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/server/link/frame.h"
#include "trireme/parallel/server/state/consistency.h"
#include "trireme/parallel/server/state/key_ranges.h"

namespace trireme::parallel {

// Sums the gradients of one piece for one update, and reads numbers from payloads.

// The rows at the beginning of the payload of a sparse push or of a pull.
// Throws: ConfigError if the payload is too short
std::span<const int64_t> rows_in(const Frame& frame);
// Throws: ConfigError unless `rows` ascend within [0, num_rows)
void check_rows(std::span<const int64_t> rows, int64_t num_rows);

// The 64-bit numbers of a payload.
// Throws: ConfigError unless their count is a multiple of `group`
std::vector<int64_t> numbers_of(const Frame& frame, int64_t group);

struct PushSum {
  std::vector<int64_t> rows;  // sparse piece: all pushed rows, ascending
  at::Tensor values;          // [rows, width]
};
// Sums in the order of `pushes`, with the same bits as all_reduce() over as many ranks.
PushSum sum_pushes(const Piece& piece, std::span<const Frame* const> pushes);

// The `part` of a kEvent frame.
enum class EventKind : uint16_t {
  kAdvance = 1,  // the worker joins, or has finished `step`; step -1: as if it had finished the
                 // latest step that all others have finished in some piece
  kLeave,        // this incarnation of the worker leaves
  kPush,         // gradients of `piece` in `step`
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
  int64_t sequence() const { return sequence_; }  // of the last event

  const std::map<uint32_t, Member>& members() const { return members_; }
  // One kLeave event for each member that is not in `workers` (number -> incarnation).
  std::vector<Frame> departures(const std::map<uint32_t, uint32_t>& workers) const;

  // Throws: ConfigError if this shard lacks the piece, the piece lacks the rows, or the step is out
  //         of bounds
  void check_pull(const Frame& pull) const;
  // Whether `worker` may pull the piece for `step`: it has pushed the piece in the previous step,
  // and no other worker is too far behind. Step 0: always.
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
    std::map<int64_t, std::map<std::pair<uint32_t, uint32_t>, Frame>> waiting{};
    at::Tensor published{};  // copy of this version of the weights
  };
  const Held& find(uint32_t piece) const;
  Held& find(uint32_t piece);
  void check_push(const Held& held, const Frame& event) const;
  // The last finished step of the slowest worker other than `except`; empty if there is none.
  std::optional<int64_t> slowest(const Held& held, std::optional<uint32_t> except) const;
  void advance(const Frame& event);
  void complete_steps(Held& held);
  void update(Held& held, std::span<const Frame* const> pushes);
  void load_members(const Frame& part);
  void load_piece(const Frame& part);

  int64_t shard_;
  Consistency consistency_;
  std::map<uint32_t, Held> held_;
  std::map<uint32_t, Member> members_;
  int64_t sequence_ = 0;
  int64_t highest_ = 0;  // highest step that any worker has finished
};

}  // namespace trireme::parallel
