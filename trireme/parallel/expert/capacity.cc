#include "trireme/parallel/expert/capacity.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

// Of one sequence: the places of each expert's assignments, by position.
using Places = std::vector<std::vector<int64_t>>;

void drop_last(std::span<int64_t> experts, const Places& places, int64_t capacity) {
  for (const std::vector<int64_t>& of_expert : places) {
    for (size_t i = static_cast<size_t>(capacity); i < of_expert.size(); ++i) {
      experts[static_cast<size_t>(of_expert[i])] = -1;
    }
  }
}

}  // namespace

int64_t expert_capacity(double factor, int64_t T, int64_t experts_per_token, int64_t num_experts) {
  return static_cast<int64_t>(std::ceil(factor * static_cast<double>(T * experts_per_token) /
                                        static_cast<double>(num_experts)));
}

at::Tensor drop_over_capacity(const at::Tensor& experts_BTK, const at::Tensor& weights_BTK,
                              int64_t num_experts, int64_t capacity, DropBy by) {
  TRIREME_ASSERT(capacity > 0, "experts with room for ", capacity, " tokens");
  const at::Tensor kept =
      experts_BTK.to(at::kCPU, at::kLong, /*non_blocking=*/false, /*copy=*/true).contiguous();
  const int64_t in_sequence = kept.size(1) * kept.size(2);
  const at::Tensor weights = by == DropBy::kProbability
                                 ? weights_BTK.detach().to(at::kCPU, at::kDouble).contiguous()
                                 : at::Tensor();
  for (int64_t b = 0; b < kept.size(0); ++b) {
    const std::span<int64_t> experts(kept.mutable_data_ptr<int64_t>() + b * in_sequence,
                                     static_cast<size_t>(in_sequence));
    Places places(static_cast<size_t>(num_experts));
    for (int64_t i = 0; i < in_sequence; ++i) {
      places[static_cast<size_t>(experts[static_cast<size_t>(i)])].push_back(i);
    }
    if (weights.defined()) {
      const double* const weight = weights.const_data_ptr<double>() + b * in_sequence;
      for (std::vector<int64_t>& of_expert : places) {
        std::ranges::stable_sort(of_expert, std::ranges::greater(),
                                 [weight](int64_t i) { return weight[i]; });
      }
    }
    drop_last(experts, places, capacity);
  }
  return kept.to(experts_BTK.device());
}

}  // namespace trireme::parallel
