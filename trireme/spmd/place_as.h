// Redistribution as an operator: differentiable, for what enters and leaves an annotated module.
#pragma once

#include <string>

#include "trireme/spmd/placed_tensor.h"

namespace trireme::spmd {

// The tensor under `places`. A tensor that is not placed is whole on every rank, and so is its
// gradient then; that of a placed one stays as it comes.
// cause: what the grid's log says of it, such as "input \"x\""
// Collective: as redistribute(), in forward and in backward
at::Tensor place_as(const GridPtr& grid, const at::Tensor& tensor, const Places& places,
                    const std::string& cause);

// The whole tensor on each rank, no placed one. Differentiable: each rank brings the whole
// gradient, the same on all.
// Collective: as redistribute(), in forward
at::Tensor leave_grid(const at::Tensor& tensor, const std::string& cause);

}  // namespace trireme::spmd
