#include "trireme/parallel/embedding/sums/square_exchange.h"

#include <ATen/ATen.h>

#include "trireme/parallel/embedding/sums/sample_tree.h"
#include "trireme/parallel/embedding/sums/square_tree.h"

namespace trireme::parallel::inline internal {
namespace {

std::vector<int64_t> begins_of(mesh::Range columns) {
  return subtrees_of(columns.offset, columns.offset + columns.size);
}

bool receives(const SplitRows& table, size_t rank) {
  return table.receiver == kEachRank || table.receiver == static_cast<int>(rank);
}

// How many sums one rank sends to another, which has the same rows.
int64_t num_sent(std::span<const SplitRows> tables, size_t from, size_t to) {
  int64_t count = 0;
  for (const SplitRows& table : tables) {
    if (!receives(table, to)) continue;
    count += table.values.size(0) * num_square_sums(table.columns[from]);
  }
  return count;
}

// From each table's subtrees, those of lower ranks first.
// arrived: [p] the sums of the tables that this rank receives
std::vector<at::Tensor> join(std::span<const SplitRows> tables, std::span<const at::Tensor> arrived,
                             size_t self) {
  std::vector<int64_t> next(arrived.size());
  std::vector<at::Tensor> squares(tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    if (!receives(tables[t], self)) continue;
    const int64_t n = tables[t].values.size(0);
    std::vector<int64_t> begins;
    std::vector<at::Tensor> sums;
    for (size_t r = 0; r < arrived.size(); ++r) {
      for (const int64_t begin : begins_of(tables[t].columns[r])) {
        begins.push_back(begin);
        sums.push_back(arrived[r].narrow(0, next[r], n));
        next[r] += n;
      }
    }
    join_subtrees(begins, sums);
    squares[t] = sums[0];
  }
  return squares;
}

}  // namespace

int64_t num_square_sums(mesh::Range columns) { return std::ssize(begins_of(columns)); }

std::vector<at::Tensor> gather_squares(std::span<const SplitRows> tables, comm::Communicator* group,
                                       const SquareOptions& options) {
  const size_t self = group == nullptr ? 0 : static_cast<size_t>(group->rank());
  const size_t num_ranks = group == nullptr ? 1 : static_cast<size_t>(group->size());
  std::vector<at::Tensor> own;
  for (const SplitRows& table : tables) {
    const mesh::Range columns = table.columns[self];
    own.push_back(squares_of(table.values, columns, begins_of(columns), options.dtype));
  }
  std::vector<at::Tensor> sent, arrived;
  for (size_t r = 0; r < num_ranks; ++r) {
    const int64_t size = num_sent(tables, self, r);
    sent.push_back(options.symmetric && num_ranks > 1
                       ? group->symmetric_empty({size}, options.dtype)
                       : at::empty({size}, at::TensorOptions(options.dtype)));
    int64_t next = 0;
    for (size_t t = 0; t < tables.size(); ++t) {
      if (!receives(tables[t], r)) continue;
      sent[r].narrow(0, next, own[t].numel()).copy_(own[t].view({-1}));
      next += own[t].numel();
    }
    arrived.push_back(at::empty({num_sent(tables, r, self)}, at::TensorOptions(options.dtype)));
  }
  if (num_ranks == 1) return join(tables, sent, self);
  group->all_to_all(arrived, sent)->wait();
  return join(tables, arrived, self);
}

}  // namespace trireme::parallel::inline internal
