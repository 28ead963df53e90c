// What the compressing hooks share: the all-reduce in two hops that every rule with a code per
// element uses, and the bytes of plain collectives.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::parallel {

// A code for rows of numbers, of a fixed number of bytes or elements a row.
struct RowCode {
  at::ScalarType dtype;  // of the code's elements
  int64_t width = 1;     // elements a coded row
  // rows [b, w] fp32 -> code [b * width]
  std::function<void(const at::Tensor& rows, const at::Tensor& code)> encode;
  // code [b * width] -> [b, w] fp32
  std::function<at::Tensor(const at::Tensor& code)> decode;
};

// The sum over ranks of `rows`, coded on the wire: every rank codes its rows and sends each rank
// the part that is its to add up; the sums are taken in fp32 in rank order, coded again and
// gathered. So a number is coded twice, however many ranks there are, and each rank decodes the
// same code, its own part included. Returns the bytes put on the wire.
// Shapes:     rows [B, w] fp32, in place
// Comm:       two hops of (p-1)/p of the code of all rows: 2(p-1)/p * B * width elements
// Collective: every rank
// Source:     the two hops of ZeRO++'s quantised reduce-scatter, Wang et al. 2023,
//             arXiv:2306.10209, section 3.3
int64_t coded_all_reduce(const at::Tensor& rows, const RowCode& code, comm::Communicator& group);

// group.all_reduce(data). Returns its bytes.
// Comm: 2(p-1)/p * n
int64_t counted_all_reduce(const at::Tensor& data, comm::Communicator& group);

// What hooks compute in: the gradient's dtype, or fp32 where that is less precise.
at::ScalarType compute_dtype(const at::TensorOptions& gradient);

}  // namespace trireme::parallel
