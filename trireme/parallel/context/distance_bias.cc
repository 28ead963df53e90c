#include "trireme/parallel/context/distance_bias.h"

#include <ATen/ATen.h>

namespace trireme::parallel {

// The last query reads the first s elements, and each query before it those one place further on.
at::Tensor BlockBias::of(const at::Tensor& bias_NR) const {
  return bias_NR.narrow(1, first_, num_distances()).unfold(1, s_, 1).flip(1);
}

// With the last query first, scores of one distance lie on a diagonal. Rows that are padded and
// then read as rows one element shorter are each shifted by one place: diagonals become columns.
void BlockBias::add(const at::Tensor& sum_NR, const at::Tensor& grad_Nts) const {
  const at::Tensor shifted_Ntr = at::constant_pad_nd(grad_Nts.flip(1), {0, t_})
                                     .flatten(1)
                                     .narrow(1, 0, t_ * num_distances())
                                     .reshape({grad_Nts.size(0), t_, num_distances()});
  sum_NR.narrow(1, first_, num_distances()).add_(shifted_Ntr.sum(1));
}

}  // namespace trireme::parallel
