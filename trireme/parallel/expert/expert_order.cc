#include "trireme/parallel/expert/expert_order.h"

#include <numeric>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel {

std::vector<int64_t> ExpertRows::of_experts() const {
  std::vector<int64_t> sums;
  for (auto first = counts.begin(); first != counts.end(); first += origins) {
    sums.push_back(std::reduce(first, first + origins));
  }
  return sums;
}

// A counting sort: 8 bytes per assignment and pass, so the host does it for any device.
ExpertOrder order_by_expert(const at::Tensor& experts_SK, int64_t num_experts) {
  const at::Tensor experts = experts_SK.cpu().contiguous();
  const int64_t S = experts.size(0), k = experts.size(1);
  const auto* const expert_of = experts.const_data_ptr<int64_t>();
  ExpertOrder order;
  order.counts.resize(static_cast<size_t>(num_experts));
  for (int64_t i = 0; i < S * k; ++i) {
    TRIREME_ASSERT(expert_of[i] >= -1 && expert_of[i] < num_experts, "expert ", expert_of[i],
                   " of ", num_experts);
    if (expert_of[i] >= 0) ++order.counts[static_cast<size_t>(expert_of[i])];
  }
  std::vector<int64_t> next(order.counts.size());
  int64_t num_rows = 0;
  for (size_t e = 0; e < next.size(); ++e) {
    next[e] = num_rows;
    num_rows += order.counts[e];
  }
  order.rows_SK = at::empty({S, k}, at::kLong);
  order.tokens_R = at::empty({num_rows}, at::kLong);
  auto* const row_of = order.rows_SK.mutable_data_ptr<int64_t>();
  auto* const token_of = order.tokens_R.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < S * k; ++i) {
    // In the order of tokens, so an expert reads a token before all later ones, on every layout.
    row_of[i] = expert_of[i] < 0 ? -1 : next[static_cast<size_t>(expert_of[i])]++;
    if (row_of[i] >= 0) token_of[row_of[i]] = i / k;
  }
  order.rows_SK = order.rows_SK.to(experts_SK.device());
  order.tokens_R = order.tokens_R.to(experts_SK.device());
  return order;
}

}  // namespace trireme::parallel
