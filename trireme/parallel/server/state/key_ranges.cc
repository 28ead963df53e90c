#include "trireme/parallel/server/state/key_ranges.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::parallel {

int64_t Piece::row_bytes() const { return width * static_cast<int64_t>(c10::elementSize(dtype)); }

namespace {

void check_parameter(const ServedParameter& parameter) {
  TRIREME_CHECK(parameter.rows >= 0 && parameter.width >= 1, "parameter \"", shown(parameter.name),
                "\" has ", parameter.rows, " rows of ", parameter.width,
                " elements; expected at least 0 rows of at least 1");
  const auto row_bytes = parameter.width * static_cast<int64_t>(c10::elementSize(parameter.dtype));
  TRIREME_CHECK(row_bytes <= kMaxPieceBytes, "parameter \"", shown(parameter.name),
                "\" has rows of ", row_bytes, " bytes; a server's piece has at most ",
                kMaxPieceBytes);
}

void cut(int64_t index, const ServedParameter& parameter, int64_t max_piece_bytes,
         std::vector<Piece>& pieces) {
  Piece piece{.parameter = index,
              .width = parameter.width,
              .dtype = parameter.dtype,
              .is_sparse = parameter.is_sparse};
  const int64_t most = std::max<int64_t>(1, max_piece_bytes / piece.row_bytes());
  for (int64_t row = 0; row < parameter.rows; row += most) {
    piece.first_row = row;
    piece.rows = std::min(most, parameter.rows - row);
    pieces.push_back(piece);
  }
}

}  // namespace

std::vector<Piece> key_ranges(std::span<const ServedParameter> parameters,
                              std::span<const double> shares, int64_t max_piece_bytes) {
  TRIREME_CHECK(max_piece_bytes >= 1 && max_piece_bytes <= kMaxPieceBytes, "a piece of ",
                max_piece_bytes, " bytes; expected 1 to ", kMaxPieceBytes);
  TRIREME_CHECK(!shares.empty(), "0 servers; expected at least 1");
  for (const double share : shares) {
    TRIREME_CHECK(std::isfinite(share) && share > 0, "a server's share is ", share,
                  "; expected a positive number");
  }
  std::vector<Piece> pieces;
  for (size_t i = 0; i < parameters.size(); ++i) {
    check_parameter(parameters[i]);
    cut(static_cast<int64_t>(i), parameters[i], max_piece_bytes, pieces);
  }
  TRIREME_CHECK(shares.size() <= pieces.size(), shares.size(), " servers for ", pieces.size(),
                pieces.size() == 1 ? " key" : " keys", "; set parallel.servers to at most ",
                pieces.size(), ", because a server without keys would be idle");
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // The largest first, which leaves the small ones to even out.
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return pieces[i].num_bytes(); });
  std::vector<double> load(shares.size());
  std::vector<size_t> by_share(shares.size());
  std::iota(by_share.begin(), by_share.end(), size_t{0});
  std::ranges::stable_sort(by_share, std::greater(), [&](size_t i) { return shares[i]; });
  for (size_t at = 0; at < order.size(); ++at) {
    Piece& piece = pieces[order[at]];
    const auto bytes = static_cast<double>(piece.num_bytes());
    size_t best = 0;
    for (size_t s = 1; s < load.size(); ++s) {
      // By what a server would have after it, in proportion to its share.
      if ((load[s] + bytes) / shares[s] < (load[best] + bytes) / shares[best]) best = s;
    }
    const size_t left = order.size() - at;
    const auto num_empty = static_cast<size_t>(std::ranges::count(load, 0.0));
    // Each server gets a key, or it would be idle: as many are left as servers are empty.
    if (num_empty >= left && load[best] > 0) {
      best = *std::ranges::find_if(by_share, [&](size_t s) { return load[s] == 0; });
    }
    load[best] += bytes;
    piece.shard = static_cast<int64_t>(best);
  }
  return pieces;
}

std::vector<int64_t> shard_bytes(std::span<const Piece> pieces, int64_t num_shards) {
  std::vector<int64_t> bytes(static_cast<size_t>(num_shards));
  for (const Piece& piece : pieces) bytes.at(static_cast<size_t>(piece.shard)) += piece.num_bytes();
  return bytes;
}

ServerShares byteps_shares(int64_t workers, int64_t cpus) {
  TRIREME_CHECK(workers >= 2, workers, " worker machines; expected at least 2");
  TRIREME_CHECK(cpus >= 0 && cpus <= workers, cpus, " CPU machines for ", workers,
                " workers; expected 0 to ", workers, ", more do not help");
  const auto n = static_cast<double>(workers);
  const auto k = static_cast<double>(cpus);
  const double whole = n * n + k * n - 2 * k;
  return {.of_worker_machine = (n - k) / whole,
          .of_cpu_machine = 2 * (n - 1) / whole,
          .bytes_factor = 2 * n * (n - 1) / whole};
}

at::Tensor PieceUpdate::read_difference(const Piece& piece, const at::Tensor& payload) const {
  const int64_t bytes = payload.defined() ? payload.numel() : 0;
  TRIREME_CHECK(bytes == piece.num_bytes(), "a difference of ", piece.numel(), " elements has ",
                bytes, " bytes; expected ", piece.num_bytes());
  const at::Tensor values = payload.view(piece.dtype).view({piece.rows, piece.width});
  TRIREME_CHECK(values.isfinite().all().item<bool>(), "a difference is not finite");
  return values;
}

}  // namespace trireme::parallel
