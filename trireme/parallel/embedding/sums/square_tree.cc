#include "trireme/parallel/embedding/sums/square_tree.h"

#include <vector>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "trireme/parallel/embedding/sums/sample_tree.h"

namespace trireme::parallel::inline internal {
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

}  // namespace trireme::parallel::inline internal
