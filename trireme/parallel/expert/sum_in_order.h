// A sum of parts in their order, at least in fp32.
#pragma once

#include <ATen/ATen.h>

namespace trireme::parallel::inline internal {

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

}  // namespace trireme::parallel::inline internal
