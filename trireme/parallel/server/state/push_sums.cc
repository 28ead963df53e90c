#include "trireme/parallel/server/state/push_sums.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/comm/reduce_kernel.h"

namespace trireme::parallel {
namespace {

const uint8_t* values_of(const Frame& push) {
  const auto* const bytes = static_cast<const uint8_t*>(push.payload.const_data_ptr());
  return bytes + push.header.num_rows * sizeof(int64_t);
}

template <typename scalar>
void add_row(scalar* to, const scalar* row, int64_t width, bool is_first) {
  // In the order of workers, and the first is copied: a sum with zero would change a -0.
  for (int64_t i = 0; i < width; ++i) to[i] = is_first ? row[i] : to[i] + row[i];
}

template <typename scalar>
void sum_rows(const Piece& piece, std::span<const Frame* const> pushes, PushSum& sum) {
  auto* const out = sum.values.mutable_data_ptr<scalar>();
  std::vector<bool> seen(sum.rows.size());
  for (const Frame* const push : pushes) {
    const auto rows = rows_in(*push);
    if (rows.empty()) continue;
    const auto* const values = reinterpret_cast<const scalar*>(values_of(*push));
    size_t place = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      // Both lists ascend, so one walk suffices.
      while (sum.rows[place] < rows[i]) ++place;
      const auto at = static_cast<int64_t>(place) * piece.width;
      add_row(out + at, values + static_cast<int64_t>(i) * piece.width, piece.width, !seen[place]);
      seen[place] = true;
    }
  }
}

PushSum sum_sparse(const Piece& piece, std::span<const Frame* const> pushes) {
  PushSum sum;
  for (const Frame* const push : pushes) {
    const auto rows = rows_in(*push);
    sum.rows.insert(sum.rows.end(), rows.begin(), rows.end());
  }
  std::ranges::sort(sum.rows);
  const auto [first, last] = std::ranges::unique(sum.rows);
  sum.rows.erase(first, last);
  sum.values = at::empty({std::ssize(sum.rows), piece.width}, piece.dtype);
  if (piece.dtype == at::kFloat) sum_rows<float>(piece, pushes, sum);
  if (piece.dtype == at::kDouble) sum_rows<double>(piece, pushes, sum);
  return sum;
}

}  // namespace

std::span<const int64_t> rows_in(const Frame& frame) {
  const int64_t count = frame.header.num_rows;
  if (count == 0) return {};
  const int64_t bytes = frame.payload.defined() ? frame.payload.numel() : 0;
  TRIREME_CHECK(bytes >= count * int64_t{sizeof(int64_t)}, "a payload of ", bytes, " bytes for ",
                count, " rows; expected at least ", count * int64_t{sizeof(int64_t)});
  return {static_cast<const int64_t*>(frame.payload.const_data_ptr()), static_cast<size_t>(count)};
}

void check_rows(std::span<const int64_t> rows, int64_t num_rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t least = i == 0 ? 0 : rows[i - 1] + 1;
    TRIREME_CHECK(rows[i] >= least && rows[i] < num_rows, "row ", rows[i],
                  " of a piece; expected ascending rows from ", least, " to ", num_rows - 1);
  }
}

std::vector<int64_t> numbers_of(const Frame& frame, int64_t group) {
  const int64_t bytes = frame.payload.defined() ? frame.payload.numel() : 0;
  const auto group_bytes = group * int64_t{sizeof(int64_t)};
  TRIREME_CHECK(bytes % group_bytes == 0, "a frame of kind ", name_of(frame.header.kind), " has ",
                bytes, " bytes of numbers; expected a multiple of ", group_bytes);
  std::vector<int64_t> values(static_cast<size_t>(bytes) / sizeof(int64_t));
  if (bytes > 0) std::memcpy(values.data(), frame.payload.const_data_ptr(), values.size() * 8);
  return values;
}

PushSum sum_pushes(const Piece& piece, std::span<const Frame* const> pushes) {
  if (piece.is_sparse) return sum_sparse(piece, pushes);
  PushSum sum;
  if (pushes.size() == 1) {
    // One worker: its payload is the sum.
    sum.values = pushes.front()->payload.view(piece.dtype).view({piece.rows, piece.width});
    return sum;
  }
  sum.values = at::empty({piece.rows, piece.width}, piece.dtype);
  std::vector<const void*> inputs;
  for (const Frame* const push : pushes) inputs.push_back(values_of(*push));
  void* const out = sum.values.mutable_data_ptr();
  comm::reduce_in_rank_order({&out, 1}, inputs, piece.numel(), piece.dtype, comm::ReduceOp::kSum);
  return sum;
}

std::optional<at::Tensor> weighted_mean(std::span<const Difference> differences) {
  const c10::NoGradGuard no_grad;
  double all = 0;
  for (const Difference& difference : differences) all += difference.weight;
  if (!(all > 0)) return std::nullopt;
  at::Tensor mean;
  for (const Difference& difference : differences) {
    if (difference.weight == 0) continue;
    const at::Tensor part = difference.values * (difference.weight / all);
    mean = mean.defined() ? mean.add_(part) : part;
  }
  return mean;
}

}  // namespace trireme::parallel
