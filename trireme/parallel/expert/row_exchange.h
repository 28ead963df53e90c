// Brings tokens to the ranks that have their experts, and the results back.
// Sources: Lepikhin et al. 2020, arXiv:2006.16668, section 3.2 (GShard); a token crosses once:
//          Rajbhandari et al. 2022, arXiv:2201.05596, section 5.2 (hierarchical); DeepSeek-AI 2024,
//          arXiv:2412.19437, section 3.2.2
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/expert/expert_axis.h"
#include "trireme/parallel/expert/expert_order.h"

namespace trireme::parallel {

// The traffic of one forward and its backward. On one rank nothing travels. A token goes once to
// each rank that has some of its experts. Results come back for each of its experts, so that they
// are added in the order of the token's experts: the same bits however the experts are shared out.
class RowExchange {
 public:
  // Collective: every rank of the axis calls the functions below, in forward and in backward
  // first: rank r computes the experts [first[r], first[r + 1]) of the order; empty: those of
  //        ExpertAxis::experts_of()
  RowExchange(ExpertOrder order, ExpertAxis axis, std::vector<int64_t> first = {});
  ~RowExchange();
  RowExchange(RowExchange&&) = default;
  RowExchange& operator=(RowExchange&&) = default;

  // The rows of each of this rank's experts, from all ranks. Known after to_experts().
  ExpertRows rows() const;
  // The rows of all ranks for this rank's experts: by expert, within one by sending rank, and then
  // in the order of its tokens. Backward adds a token's gradients in the order of its assignments.
  // Shapes: x_SD [S, D] -> [number of rows(), D]
  // Comm:   8 (e + 1) bytes to each owner of e experts. For each pair of a token and another rank
  //         that has experts for it D*itemsize bytes; for each row there 4 bytes (fp64: 8), for
  //         each rank filled up to whole rows. Backward D*itemsize bytes for each row.
  at::Tensor to_experts(const at::Tensor& x_SD);
  // The same in two parts: what is computed between them hides the exchange, and what backward
  // computes for it hides that of the gradients.
  at::Tensor start_to_experts(const at::Tensor& x_SD);
  at::Tensor finish_to_experts(const at::Tensor& started);
  // Sends the tokens of a later to_experts() or start_to_experts() already now, in the background.
  void send_ahead(const at::Tensor& x_SD);
  // Each token's sum of its experts' results times their weights, in the order of its assignments
  // and at least in fp32. A dropped assignment adds nothing, and its weight has gradient zero.
  // Shapes: results [number of rows(), D], weights_SK [S, k] -> [S, D] of the results' dtype
  // Comm:   D*itemsize bytes for each row; backward as to_experts(), without its first term
  at::Tensor to_tokens(const at::Tensor& results, const at::Tensor& weights_SK);

  struct State;

 private:
  at::Tensor start(const at::Tensor& x_SD, bool background);
  std::shared_ptr<State> state_;
};

}  // namespace trireme::parallel
