// Copies of the busiest experts on every rank of the expert axis, and the order in which their
// gradients are summed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>

#include "trireme/parallel/expert/expert_axis.h"

namespace trireme::parallel {

// A sum of parts in their order, at least in fp32.

// part_of(i, buffer) returns part i, which may be `buffer` with the part written to it.
// scratch: such a buffer, made when needed, for further sums of this shape.
template <typename PartOf>
void sum_in_order(at::Tensor out, int64_t num_parts, at::Tensor& scratch, const PartOf& part_of) {
  if (num_parts == 0) out.zero_();
  if (num_parts == 0) return;
  const at::Tensor first = part_of(0, out);
  if (!first.is_same(out)) out.copy_(first);
  if (num_parts == 1) return;
  if (!scratch.defined()) scratch = at::empty_like(out);
  at::Tensor sum = out.to(at::promote_types(out.scalar_type(), at::kFloat));
  for (int64_t i = 1; i < num_parts; ++i) sum.add_(part_of(i, scratch));
  if (!sum.is_same(out)) out.copy_(sum);
}

// Copies of the busiest experts on every rank of the expert axis. Their tokens stay where they are.
// Source: He et al. 2022, FasterMoE, PPoPP '22, doi:10.1145/3503221.3508418, section 4.1

// The `number` experts with the most assignments, in ascending order. Of equal ones the lower
// index.
std::vector<int64_t> busiest_experts(std::span<const double> assignments, int64_t number);

// Each rank computes the copies for its own tokens, and its own experts for the tokens of all. An
// order of rows counts, rank by rank, the copies and then the rank's own experts; of these, the
// copied ones have no rows. Nothing is copied if `copied` is empty.
class ExpertReplicas {
 public:
  // copied: ascending, the same on every rank of the axis.
  ExpertReplicas(std::vector<int64_t> copied, int64_t num_experts, ExpertAxis axis);

  int64_t num_copied() const { return std::ssize(copied_); }
  // Rank r computes the experts [first()[r], first()[r + 1]) of an order, first().back() in all.
  const std::vector<int64_t>& first() const { return first_; }
  // Shapes: [S, k] int64, experts of the model or -1 -> [S, k], as this rank's order counts them
  at::Tensor renumber(const at::Tensor& experts_SK) const;

  // The copied experts' weights from the ranks that own them. Has no gradient.
  // Shapes:     stack [e, F, D], this rank's own -> [n, F, D]
  // Comm:       F*D*itemsize bytes for each copied expert of another rank
  // Collective: every rank of the axis, as is the next
  at::Tensor copies_of(const at::Tensor& stack) const;
  // The gradients of the copies are added up, in the order of ranks and at least in fp32, where the
  // experts are: the bits of a sum over all ranks' rows there.
  // Shapes: of_copies [n, F, D]; stack [e, F, D]: written where this rank's experts were copied
  // Comm:   as copies_of()
  void sum_gradients(const at::Tensor& of_copies, const at::Tensor& stack) const;

 private:
  std::vector<int64_t> copied_of(
      int rank) const;                  // the numbers of a rank's copied ones in its stack
  std::vector<int64_t> blocks() const;  // [p] how many these are

  std::vector<int64_t> copied_;
  ExpertAxis axis_;
  int64_t num_experts_;
  std::vector<int64_t> first_;
  at::Tensor numbers_E_;  // the number of each expert in this rank's order
};

}  // namespace trireme::parallel
