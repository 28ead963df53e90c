#include "trireme/train/numerics/table_norm.h"

#include <algorithm>
#include <span>

#include <ATen/ATen.h>

#include "trireme/train/numerics/exact_sum.h"

namespace trireme::train::inline internal {

std::vector<double> table_squares(const parallel::EmbeddingTables& tables,
                                  comm::Communicator& group) {
  const size_t T = tables.configs().size();
  std::vector<ExactSum> sums(T);
  const std::vector<at::Tensor> squares_of_rows = tables.gradient_squares();
  for (size_t t = 0; t < squares_of_rows.size(); ++t) {
    const at::Tensor& squares = squares_of_rows[t];
    if (!squares.defined()) continue;
    const auto* const begin = squares.const_data_ptr<double>();
    for (int64_t i = 0; i < squares.numel(); ++i) sums[t].add(begin[i]);
  }
  const at::Tensor limbs =
      at::empty({static_cast<int64_t>(T), static_cast<int64_t>(ExactSum::kNumLimbs)}, at::kLong);
  const std::span all(limbs.mutable_data_ptr<int64_t>(), T * ExactSum::kNumLimbs);
  const auto limbs_of = [&](size_t t) {
    return all.subspan(t * ExactSum::kNumLimbs, ExactSum::kNumLimbs);
  };
  for (size_t t = 0; t < T; ++t) std::ranges::copy(sums[t].limbs(), limbs_of(t).begin());
  group.all_reduce(limbs)->wait();
  std::vector<double> squares;
  for (size_t t = 0; t < T; ++t) {
    ExactSum whole;
    whole.add(limbs_of(t));
    squares.push_back(whole.value());
  }
  return squares;
}

}  // namespace trireme::train::inline internal
