// Shared by the compressing hooks: the two-hop all-reduce for rules that code each element, and the
// bytes of plain collectives.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::parallel {

// A code for rows of numbers with a fixed number of elements per row.
struct RowCode {
  at::ScalarType dtype;  // of the code
  int64_t width = 1;     // elements per coded row
  // rows [b, w] fp32 -> code [b * width]
  std::function<void(const at::Tensor& rows, const at::Tensor& code)> encode;
  // code [b * width] -> [b, w] fp32
  std::function<at::Tensor(const at::Tensor& code)> decode;
};

// Sums `rows` over ranks, coded on the wire. Every rank codes its rows and sends each rank the part
// which that rank adds up. The sums are taken in fp32 in rank order, coded again and gathered. A
// number is thus coded twice, however many ranks there are. All ranks decode the same code,
// including their own part. Returns the bytes put on the wire.
// Shapes:     rows [B, w] fp32, in place
// Comm:       two hops of (p-1)/p of the code of all rows: 2(p-1)/p * B * width elements
// Collective: every rank
// Source:     the two hops of ZeRO++'s quantised reduce-scatter, Wang et al. 2023,
//             arXiv:2306.10209, section 3.3
int64_t coded_all_reduce(const at::Tensor& rows, const RowCode& code, comm::Communicator& group);

// Calls group.all_reduce(data) and returns its bytes.
// Comm: 2(p-1)/p * n
int64_t counted_all_reduce(const at::Tensor& data, comm::Communicator& group);

// The dtype that hooks compute in: the gradient's, or fp32 if that is more precise.
at::ScalarType compute_dtype(const at::TensorOptions& gradient);

}  // namespace trireme::parallel
