// Cuts parameters into pieces and assigns the pieces to servers. Pure arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

namespace trireme::parallel {

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

}  // namespace trireme::parallel
