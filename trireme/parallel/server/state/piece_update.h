// What a server does with gradients. The caller gives the rule, because optimizers live in other
// layers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/server/state/key_ranges.h"

namespace trireme::parallel {

struct PieceGradient {
  std::span<const int64_t> rows{};  // of a sparse piece: ascending, counted within the piece
  at::Tensor values;                // [rows, width]; of a dense piece every row
};

struct PieceState {
  std::string name;  // "exp_avg"
  at::Tensor values;
};

// The update rule of one piece. All that it remembers is in states(), and it depends on nothing but
// its arguments and them, because a copy of the piece on another server must get the same bits.
// Called by one thread at a time.
class PieceUpdate {
 public:
  virtual ~PieceUpdate() = default;
  // weights: [rows, width], updated in place
  // step: counts the updates of this piece, from 1
  virtual void apply(at::Tensor& weights, const PieceGradient& gradient, double learning_rate,
                     int64_t step) = 0;
  // Contiguous CPU tensors of at most kMaxPieceBytes each, which share memory with the rule.
  virtual std::vector<PieceState> states() = 0;
};

struct ServedPiece {
  at::Tensor weights;  // contiguous [rows, width]
  std::unique_ptr<PieceUpdate> update;
};

// Makes piece number `index` of the run with its initial weights: the same on every server.
using MakePiece = std::function<ServedPiece(const Piece& piece, int64_t index)>;

}  // namespace trireme::parallel
