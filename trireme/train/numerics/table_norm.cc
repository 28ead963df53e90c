#include "trireme/train/numerics/table_norm.h"

#include <algorithm>
#include <span>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include "trireme/base/machine/simd.h"
#include "trireme/train/numerics/exact_sum.h"

namespace trireme::train::inline internal {
namespace {

// sums: [n, width]
void add_squares(const at::Tensor& sums, ExactSum& sum) {
  const int64_t width = sums.size(1);
  AT_DISPATCH_FLOATING_TYPES(sums.scalar_type(), "table_squares", [&] {
    const auto* row = sums.const_data_ptr<scalar_t>();
    for (int64_t i = 0; i < sums.size(0); ++i, row += width) {
      sum.add(lane_sum<double>(width, [&](int64_t d) {
        const auto g = static_cast<double>(row[d]);
        return g * g;
      }));
    }
  });
}

bool counts(const parallel::TableConfig& table, int rank) {
  const bool is_on_every_rank = table.placement.kind == mesh::Placement::Kind::kReplicated;
  return !is_on_every_rank || rank == 0;
}

}  // namespace

std::vector<double> table_squares(const parallel::EmbeddingTables& tables,
                                  comm::Communicator& group) {
  const size_t T = tables.configs().size();
  std::vector<ExactSum> sums(T);
  for (size_t t = 0; t < tables.gradients().size(); ++t) {
    if (counts(tables.configs()[t], group.rank())) add_squares(tables.gradients()[t].sums, sums[t]);
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
