// Sends rows to the ranks that have their experts, and the results back.
// Source: Lepikhin et al. 2020, arXiv:2006.16668, section 3.2 (GShard)
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/layout.h"

namespace trireme::parallel {

// The ranks that share out a block's experts. Each has other tokens. Small and freely copied.
struct ExpertAxis {
  comm::Communicator* group = nullptr;  // null: only this rank
  // Adds up how long this rank waits for others; null: not measured.
  std::shared_ptr<std::chrono::nanoseconds> waiting{};
  // How many of its tokens a rank sends to experts at once. Their ranks then keep nothing of them,
  // and backward sends them once more. 0: all at once, and what backward needs is kept.
  int64_t chunk_tokens = 0;

  int size() const { return group == nullptr ? 1 : group->size(); }
  int rank() const { return group == nullptr ? 0 : group->rank(); }
  mesh::Range experts_of(int64_t num_experts, int rank) const {
    return mesh::split_range(num_experts, size(), rank);
  }
};

struct RowTransfer;

// The traffic of one forward and its backward. On one rank nothing moves.
class RowExchange {
 public:
  // counts: this rank's rows for each expert of the model, as order_by_expert() gives them.
  // Comm:       8 bytes per expert from each rank to its owner
  // Collective: every rank of the axis, as are the functions below, in forward and in backward
  RowExchange(std::span<const int64_t> counts, const ExpertAxis& axis);

  // The rows of each of this rank's experts, from all ranks.
  const std::vector<int64_t>& counts() const { return plan_->counts; }
  // The rows of all ranks for this rank's experts: by expert, within one by sending rank, and then
  // in the sender's order.
  // Shapes: rows_RD [R, D], by expert -> [sum of counts(), D]
  // Comm:   D*itemsize bytes for each row whose expert is on another rank; the same in backward
  at::Tensor to_experts(const at::Tensor& rows_RD) const;
  // The same in two parts: what is computed between them hides the exchange, and what backward
  // computes for it hides that of the gradients. `arriving` is not to be read before the second.
  struct Arriving {
    at::Tensor rows;
    std::shared_ptr<RowTransfer> transfer;  // null: they are there
  };
  Arriving start_to_experts(const at::Tensor& rows_RD) const;
  at::Tensor finish_to_experts(const Arriving& arriving) const;
  // The reverse.
  // Shapes: [sum of counts(), D] -> [R, D]
  // Comm:   as to_experts()
  at::Tensor from_experts(const at::Tensor& rows) const;

  struct Plan {
    ExpertAxis axis;
    std::vector<int64_t> sent;      // [p] rows of this rank for each rank's experts
    std::vector<int64_t> received;  // [p] rows of each rank for this rank's experts
    std::vector<int64_t> counts;    // [e]
    at::Tensor order;               // for each row by expert, its place among the received ones
    at::Tensor reverse;             // for each received row, its place among those by expert
  };

 private:
  std::shared_ptr<const Plan> plan_;
};

}  // namespace trireme::parallel
