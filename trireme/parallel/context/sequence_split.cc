#include "trireme/parallel/context/sequence_split.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

// With a causal mask the last tokens read most keys. A pair of one early and one late chunk gives
// each rank the same work.
std::vector<int> chunks_of(int rank, int num_ranks, SequenceOrder order) {
  if (order == SequenceOrder::kContiguous) return {rank};
  return {rank, 2 * num_ranks - 1 - rank};
}

}  // namespace

SequenceSplit::SequenceSplit(int64_t length, int num_ranks, SequenceOrder order) : length_(length) {
  TRIREME_CHECK(length >= 0, "a sequence of ", length, " tokens; expected 0 or more");
  TRIREME_CHECK(num_ranks >= 1, "a sequence split over ", num_ranks, " ranks; expected 1 or more");
  const int num_chunks = order == SequenceOrder::kContiguous ? num_ranks : 2 * num_ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<mesh::Range>& ranges = ranges_.emplace_back();
    for (const int chunk : chunks_of(rank, num_ranks, order)) {
      const mesh::Range range = mesh::split_range(length, num_chunks, chunk);
      if (range.size == 0) continue;
      // Neighbouring chunks become one range: a kernel call less.
      if (!ranges.empty() && ranges.back().offset + ranges.back().size == range.offset) {
        ranges.back().size += range.size;
      } else {
        ranges.push_back(range);
      }
    }
  }
}

int64_t SequenceSplit::num_tokens(int rank) const {
  int64_t sum = 0;
  for (const mesh::Range& range : ranges_[rank]) sum += range.size;
  return sum;
}

at::Tensor SequenceSplit::positions(int rank) const {
  return local(at::arange(length_, at::kLong), 0, rank);
}

at::Tensor SequenceSplit::local(const at::Tensor& whole, int64_t dim, int rank) const {
  TRIREME_CHECK_OP(whole.size(dim), ==, length_, "dimension ", dim,
                   " is not the sequence that is split");
  std::vector<at::Tensor> parts;
  for (const mesh::Range& range : ranges_[rank])
    parts.push_back(whole.narrow(dim, range.offset, range.size));
  if (parts.empty()) return whole.narrow(dim, 0, 0);
  // A copy only where there are several ranges.
  return parts.size() == 1 ? parts[0] : at::cat(parts, dim);
}

at::Tensor SequenceSplit::assemble(const std::vector<at::Tensor>& parts, int64_t dim) const {
  TRIREME_CHECK_OP(static_cast<int>(parts.size()), ==, num_ranks(), "one part per rank expected");
  std::vector<std::pair<int64_t, at::Tensor>> pieces;  // by position
  for (int rank = 0; rank < num_ranks(); ++rank) {
    TRIREME_CHECK_OP(parts[rank].size(dim), ==, num_tokens(rank), "tokens in the part of rank ",
                     rank);
    int64_t offset = 0;
    for (const mesh::Range& range : ranges_[rank]) {
      pieces.emplace_back(range.offset, parts[rank].narrow(dim, offset, range.size));
      offset += range.size;
    }
  }
  if (pieces.empty()) return parts[0];
  std::ranges::sort(pieces, {}, &std::pair<int64_t, at::Tensor>::first);
  std::vector<at::Tensor> ordered;
  for (auto& [position, piece] : pieces) ordered.push_back(std::move(piece));
  return at::cat(ordered, dim);
}

}  // namespace trireme::parallel
