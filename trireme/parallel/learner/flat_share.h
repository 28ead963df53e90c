// The share of a flat tensor that one of several ranks with the same values sends for all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::parallel {

// This rank's share, of about equal ones: a view.
// Shapes: flat [n] -> [n / p], for p ranks
at::Tensor view_share(const at::Tensor& flat, const comm::Communicator& replicas);

// Brings each rank's share of `flat` to all of them.
// Comm:       the other ranks' shares
// Collective: every rank of `replicas`
void gather_shares(const at::Tensor& flat, comm::Communicator& replicas);

}  // namespace trireme::parallel
