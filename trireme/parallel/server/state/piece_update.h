// How a server applies gradients. The caller supplies the rule, because optimizers live in other
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
  std::span<const int64_t> rows{};  // sparse piece: ascending, counted from the piece's first row
  at::Tensor values;                // [rows, width]; dense piece: all rows
};

struct PieceState {
  std::string name;  // "exp_avg"
  at::Tensor values;
};

// The update rule of one piece. It keeps all its memory in states() and depends only on them and on
// its arguments, because a copy of the piece on another server must get the same bits. Called by
// one thread at a time. An exception ends the server.
class PieceUpdate {
 public:
  virtual ~PieceUpdate() = default;
  // weights: [rows, width], updated in place
  // step: counts the updates of this piece, from 1
  virtual void apply(at::Tensor& weights, const PieceGradient& gradient, double learning_rate,
                     int64_t step) = 0;
  // Contiguous CPU tensors of at most kMaxPieceBytes each; they share memory with the rule.
  virtual std::vector<PieceState> states() = 0;
};

struct ServedPiece {
  at::Tensor weights;  // contiguous [rows, width]
  std::unique_ptr<PieceUpdate> update;
};

// Makes piece number `index` of the run with its initial weights. Every server must get equal ones.
using MakePiece = std::function<ServedPiece(const Piece& piece, int64_t index)>;

}  // namespace trireme::parallel
