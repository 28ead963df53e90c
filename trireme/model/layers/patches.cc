#include "trireme/model/layers/patches.h"

#include <ATen/ATen.h>

namespace trireme::model {

at::Tensor view_patches(const at::Tensor& images, int64_t patch_size) {
  const int64_t P = patch_size;
  const int64_t side = images.size(2) / P;  // patches in a row of the image
  return images.unflatten(3, {side, P}).unflatten(2, {side, P}).permute({0, 2, 4, 1, 3, 5});
}

at::Tensor own_token_rows(const at::Tensor& rows_BTK, const TokenBatch& batch,
                          const parallel::TensorAxis& axis) {
  const at::Tensor rows_S =
      parallel::view_rows(batch.context ? batch.context->local(rows_BTK, 1).clone() : rows_BTK);
  if (!axis.sequence) return rows_S;
  const mesh::Range own = axis.own_rows(rows_S.size(0));
  return own.size == rows_S.size(0) ? rows_S : rows_S.narrow(0, own.offset, own.size).clone();
}

}  // namespace trireme::model
