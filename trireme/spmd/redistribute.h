// Moves a tensor's blocks from one split to another. The values of the whole tensor stay.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/spmd/place.h"

namespace trireme::spmd {

// This rank's block under `to`, from its block under `from`, of a tensor of `sizes`. May share
// memory with `local`. Sums are taken in the groups' order, see Communicator.
// Collective: the groups of the axes whose places differ
// Comm:       for p ranks of an axis and this rank's n bytes: partial to replicated 2(p-1)/p n, to
//             sharded (p-1)/p n; sharded to replicated (p-1) n, to sharded (p-1)/p n; from
//             replicated, and from sharded to partial, none
at::Tensor redistribute(const Grid& grid, const at::Tensor& local, c10::IntArrayRef sizes,
                        const Places& from, const Places& to);

// Bytes that a rank sends for one axis, of `bytes` that its block has when no axis splits it.
double bytes_moved(const Place& from, const Place& to, int size, double bytes);

}  // namespace trireme::spmd
