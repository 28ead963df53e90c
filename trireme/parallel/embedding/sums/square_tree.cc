#include "trireme/parallel/embedding/sums/square_tree.h"

#include <vector>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "trireme/parallel/embedding/sums/sample_tree.h"

namespace trireme::parallel {
namespace {

constexpr int64_t kRowsPerTask = 1024;

// The columns [first, first + width) of rows that begin `stride` apart.
template <typename number, typename scalar>
TRIREME_INLINE void squares_body(const scalar* rows, int64_t n, int64_t stride, int64_t width,
                                 number* sums) {
  for (int64_t i = 0; i < n; ++i) sums[i] = sum_squares<number>(rows + i * stride, width);
}

#define TRIREME_SQUARES(number, scalar)                                                \
  TRIREME_MULTIVERSION void squares_run(const scalar* rows, int64_t n, int64_t stride, \
                                        int64_t width, number* sums) {                 \
    squares_body(rows, n, stride, width, sums);                                        \
  }
TRIREME_SQUARES(float, float)
TRIREME_SQUARES(double, float)
TRIREME_SQUARES(double, double)
#undef TRIREME_SQUARES

template <typename number, typename scalar>
void write_squares(const at::Tensor& rows, mesh::Range columns, std::span<const int64_t> begins,
                   const at::Tensor& sums) {
  const int64_t n = rows.size(0);
  const auto* const values = rows.const_data_ptr<scalar>();
  auto* const out = sums.mutable_data_ptr<number>();
  for (size_t k = 0; k < begins.size(); ++k) {
    const int64_t first = begins[k] - columns.offset;
    const int64_t end = k + 1 < begins.size() ? begins[k + 1] - columns.offset : columns.size;
    at::parallel_for(0, n, kRowsPerTask, [&](int64_t begin, int64_t last) {
      squares_run(values + begin * columns.size + first, last - begin, columns.size, end - first,
                  out + static_cast<int64_t>(k) * n + begin);
    });
  }
}

}  // namespace

at::Tensor squares_of(const at::Tensor& rows, mesh::Range columns, std::span<const int64_t> begins,
                      c10::ScalarType dtype) {
  at::Tensor sums = at::empty({std::ssize(begins), rows.size(0)}, at::TensorOptions(dtype));
  if (rows.scalar_type() == at::kDouble) {
    write_squares<double, double>(rows, columns, begins, sums);
  } else if (dtype == at::kDouble) {
    write_squares<double, float>(rows, columns, begins, sums);
  } else {
    write_squares<float, float>(rows, columns, begins, sums);
  }
  return sums;
}

// As sum_up_tree() does for the terms of one row, but each sum is of n rows.
void join_subtrees(std::span<const int64_t> begins, std::span<const at::Tensor> sums) {
  struct Entry {
    at::Tensor sums;
    int height;  // of the node over this entry and the one below it
  };
  std::vector<Entry> stack;
  const auto join_top = [&] {
    const at::Tensor right = stack.back().sums;
    stack.pop_back();
    stack.back().sums += right;
  };
  for (size_t k = 0; k < begins.size(); ++k) {
    const int height = k == 0 ? 0 : height_over(begins[k - 1], begins[k]);
    while (stack.size() > 1 && stack.back().height < height) join_top();
    stack.push_back({sums[k], height});
  }
  while (stack.size() > 1) join_top();
}

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
    // What another rank reads in place.
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
  // Without a group nothing travels.
  if (num_ranks == 1) return join(tables, sent, self);
  group->all_to_all(arrived, sent)->wait();
  return join(tables, arrived, self);
}

}  // namespace trireme::parallel
