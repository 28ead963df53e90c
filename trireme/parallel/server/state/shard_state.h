// One copy of a shard: its pieces, and what every worker has pushed. A pure state machine: the same
// events in the same order give the same bits on every copy.
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
#include "trireme/parallel/server/state/piece_update.h"

namespace trireme::parallel::inline internal {

// The `part` of a kEvent frame.
enum class EventKind : uint16_t {
  kAdvance = 1,  // the worker takes part and has finished `step`; step -1: the step that every
                 // other has finished in some piece
  kLeave,        // the worker with this incarnation takes part no more
  kPush,         // gradients of `piece` in `step`
};

struct Member {
  uint32_t incarnation = 0;
  int64_t base = 0;  // the step that its last kAdvance has set
};

class ShardState {
 public:
  // pieces: of the whole run; those of `shard` are made with `make`.
  // Throws: ConfigError when `make` gives a piece of another shape
  ShardState(std::span<const Piece> pieces, int64_t shard, Consistency consistency,
             const MakePiece& make);

  enum class Verdict {
    kNew,
    kDuplicate,  // applied already
    kStranger,   // of a worker, or an incarnation of it, that takes no part
  };
  // Throws: ConfigError when no worker sends such a thing
  Verdict judge(const Frame& event) const;
  // event: judged kNew; its sequence is sequence() + 1.
  void apply(const Frame& event);
  int64_t sequence() const { return sequence_; }  // of the last event

  const std::map<uint32_t, Member>& members() const { return members_; }
  // The events that make the members those of `workers` (number, incarnation): for those who left.
  std::vector<Frame> departures(const std::map<uint32_t, uint32_t>& workers) const;

  // Throws: ConfigError when this shard has no such piece, the piece no such rows, or no run such a
  //         step
  void check_pull(const Frame& pull) const;
  // Whether `worker` may have the piece before its step `step`: it has pushed the piece in the step
  // before, and no other worker is too far behind. Step 0: whatever is there.
  // Throws: ConfigError when this shard has no such piece
  bool may_pull(uint32_t worker, uint32_t piece, int64_t step) const;
  // How many steps `worker`, before `step`, is ahead of the slowest.
  int64_t steps_ahead(uint32_t worker, uint32_t piece, int64_t step) const;
  // A copy of the weights that later updates leave alone.
  at::Tensor weights(uint32_t piece);
  // The bytes of some of a piece's rows, in their order.
  // Throws: ConfigError unless they ascend within the piece
  at::Tensor rows(uint32_t piece, std::span<const int64_t> rows) const;
  int64_t version(uint32_t piece) const { return find(piece).version; }  // updates so far
  // A copy of the rows that a kPullState frame asks for; empty: the optimizer has fewer tensors.
  // Throws: ConfigError when this shard has no such piece, or the piece no such rows
  std::optional<at::Tensor> state(const Frame& pull) const;

  // kSnapshot frames that make load() the same state. Each shares no memory with this.
  std::vector<Frame> snapshot() const;
  // Returns whether that was the last part.
  // Throws: ConfigError when it is not a part of a snapshot of this shard
  bool load(const Frame& part);

 private:
  struct Held {  // a piece
    Piece piece{};
    int64_t index = 0;
    at::Tensor weights{};
    std::unique_ptr<PieceUpdate> update{};
    int64_t version = 0;
    std::map<uint32_t, int64_t> finished{};  // worker -> last step pushed
    // Synchronous: the pushes of a step that some worker has not finished, in the order of workers.
    std::map<int64_t, std::map<std::pair<uint32_t, uint32_t>, Frame>> waiting{};
    at::Tensor published{};  // the weights' copy of this version
  };
  const Held& find(uint32_t piece) const;
  Held& find(uint32_t piece);
  void check_push(const Held& held, const Frame& event) const;
  // The last step of the slowest worker but `except`; empty: there is no other.
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
  int64_t highest_ = 0;  // step that any worker has ever finished
};

}  // namespace trireme::parallel::inline internal
