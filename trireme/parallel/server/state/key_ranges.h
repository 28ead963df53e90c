// The pieces of parameters: how they are cut, which server has them, and how gradients are applied
// to them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace trireme::parallel {

// Cuts parameters into pieces and assigns the pieces to servers. Pure arithmetic.

// A parameter as servers see it: `rows` rows of `width` elements.
struct ServedParameter {
  std::string name;
  int64_t rows = 0;  // dense: the number of elements
  int64_t width = 1;
  c10::ScalarType dtype = c10::kFloat;
  bool is_sparse = false;  // pushed as (rows, summed gradients)
};

// A range of one parameter's rows. One server, or one chain of servers, owns it.
struct Piece {
  int64_t parameter = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t width = 1;
  c10::ScalarType dtype = c10::kFloat;
  bool is_sparse = false;
  int64_t shard = 0;  // index of the owner

  int64_t numel() const { return rows * width; }
  int64_t row_bytes() const;
  int64_t num_bytes() const { return rows * row_bytes(); }
};

inline constexpr int64_t kMaxPieceBytes = int64_t{4} << 20;

// Returns pieces in the order of the parameters, each of at most `max_piece_bytes` or one row.
// Assigns the largest piece first, each to the shard that has the fewest bytes, relative to its
// share, after it gets the piece.
// shares: one for each shard: its relative size, positive
// Throws: ConfigError if there are fewer pieces than shards, or a row exceeds kMaxPieceBytes
std::vector<Piece> key_ranges(std::span<const ServedParameter> parameters,
                              std::span<const double> shares,
                              int64_t max_piece_bytes = kMaxPieceBytes);

// Bytes of each shard.
std::vector<int64_t> shard_bytes(std::span<const Piece> pieces, int64_t num_shards);

// The share of M bytes that each server owns so that all machines' networks are equally busy, for
// `workers` machines with a worker and a server each and `cpus` machines with only a server.
struct ServerShares {
  double of_worker_machine = 0;  // (n - k) / (n^2 + kn - 2k)
  double of_cpu_machine = 0;     // 2 (n - 1) / (n^2 + kn - 2k)
  double bytes_factor = 0;       // bytes in and out of each machine per byte of M, 2n(n-1)/(...)
};
// Throws: ConfigError unless 2 <= workers and 0 <= cpus <= workers
// Source: Jiang et al. 2020, "A unified architecture for accelerating distributed DNN training",
//         OSDI, section 4.1
ServerShares byteps_shares(int64_t workers, int64_t cpus);

// Applies gradients on a server. The caller supplies the rule, because optimizers live in other
// layers.

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
  // In rounds: what a worker's push says. Without another rule, its bytes are the numbers.
  // payload: uint8, as it came
  // Returns: finite [rows, width] of the piece's dtype
  // Throws:  ConfigError
  virtual at::Tensor read_difference(const Piece& piece, const at::Tensor& payload) const;
};

struct ServedPiece {
  at::Tensor weights;  // contiguous [rows, width]
  std::unique_ptr<PieceUpdate> update;
};

// Makes piece number `index` of the run with its initial weights. Every server must get equal ones.
using MakePiece = std::function<ServedPiece(const Piece& piece, int64_t index)>;

}  // namespace trireme::parallel
