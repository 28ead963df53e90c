// Images as rows of patches, the tokens of a transformer.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/model/family/plan.h"

namespace trireme::model {

// A view of the patches. A patch's neighbour on its right is the next one in its row.
// Shapes: images [B, C, side * P, side * P] -> [B, side, side, C, P, P]
at::Tensor view_patches(const at::Tensor& images, int64_t patch_size);

// The rows of whole images that this rank holds between the layers. A copy if they are not all
// rows, because backward keeps them.
// Shapes: rows_BTK [B, T, K] -> [s, K]
at::Tensor own_token_rows(const at::Tensor& rows_BTK, const TokenBatch& batch,
                          const parallel::TensorAxis& axis);

}  // namespace trireme::model
