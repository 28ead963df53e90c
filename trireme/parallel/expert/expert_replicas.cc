#include "trireme/parallel/expert/expert_replicas.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel {

std::vector<int64_t> busiest_experts(std::span<const double> assignments, int64_t number) {
  std::vector<int64_t> experts(assignments.size());
  std::iota(experts.begin(), experts.end(), 0);
  // Stable: of equally busy experts the lower one, on every rank alike.
  std::ranges::stable_sort(experts, std::greater(),
                           [&](int64_t e) { return assignments[static_cast<size_t>(e)]; });
  experts.resize(std::min(experts.size(), static_cast<size_t>(number)));
  std::ranges::sort(experts);
  return experts;
}

ExpertReplicas::ExpertReplicas(std::vector<int64_t> copied, int64_t num_experts, ExpertAxis axis)
    : copied_(std::move(copied)), axis_(std::move(axis)), num_experts_(num_experts) {
  TRIREME_ASSERT(std::ranges::is_sorted(copied_), "copied experts are in ascending order");
  const int64_t n = num_copied();
  std::vector<int64_t> numbers;
  for (int rank = 0; rank < axis_.size(); ++rank) {
    const mesh::Range own = axis_.experts_of(num_experts, rank);
    first_.push_back(rank * n + own.offset);
    for (int64_t e = 0; e < own.size; ++e) numbers.push_back(first_.back() + n + e);
  }
  first_.push_back(axis_.size() * n + num_experts);
  for (int64_t i = 0; i < n; ++i) {
    // This rank sends rows of copied experts to itself.
    numbers.at(static_cast<size_t>(copied_[static_cast<size_t>(i)])) =
        first_[static_cast<size_t>(axis_.rank())] + i;
  }
  numbers.push_back(-1);  // of a dropped assignment, the last
  numbers_E_ = at::tensor(numbers, at::kLong);
}

at::Tensor ExpertReplicas::renumber(const at::Tensor& experts_SK) const {
  if (num_copied() == 0) return experts_SK;
  const at::Tensor place = at::where(experts_SK.lt(0), num_experts_, experts_SK).view({-1});
  return numbers_E_.to(experts_SK.device()).index_select(0, place).view(experts_SK.sizes());
}

std::vector<int64_t> ExpertReplicas::copied_of(int rank) const {
  const mesh::Range own = axis_.experts_of(num_experts_, rank);
  std::vector<int64_t> numbers;
  for (const int64_t e : copied_) {
    if (e >= own.offset && e < own.offset + own.size) numbers.push_back(e - own.offset);
  }
  return numbers;
}

std::vector<int64_t> ExpertReplicas::blocks() const {
  std::vector<int64_t> sizes;
  for (int rank = 0; rank < axis_.size(); ++rank) sizes.push_back(std::ssize(copied_of(rank)));
  return sizes;
}

at::Tensor ExpertReplicas::copies_of(const at::Tensor& stack) const {
  at::Tensor copies = at::empty({num_copied(), stack.size(1), stack.size(2)}, stack.options());
  const at::Tensor mine = stack.detach().index_select(
      0, at::tensor(copied_of(axis_.rank()), at::kLong).to(stack.device()));
  // Every rank has all.
  if (axis_.size() == 1) return mine;
  axis_.group->all_gather(copies.split_with_sizes(blocks()), mine)->wait();
  return copies;
}

void ExpertReplicas::sum_gradients(const at::Tensor& of_copies, const at::Tensor& stack) const {
  // In rank order below, so the sum does not depend on which rank was busy.
  const std::vector<int64_t> mine = copied_of(axis_.rank());
  const int64_t num_own = std::ssize(mine);
  at::Tensor parts =
      at::empty({axis_.size(), num_own, stack.size(1), stack.size(2)}, stack.options());
  if (axis_.size() == 1) {
    parts.select(0, 0).copy_(of_copies);
  } else {
    axis_.group->all_to_all(parts.unbind(0), of_copies.split_with_sizes(blocks()))->wait();
  }
  at::Tensor scratch;
  for (int64_t i = 0; i < num_own; ++i) {
    sum_in_order(stack.select(0, mine[static_cast<size_t>(i)]), axis_.size(), scratch,
                 [&](int64_t rank, const at::Tensor& /*buffer*/) { return parts[rank][i]; });
  }
}

}  // namespace trireme::parallel
