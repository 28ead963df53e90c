// The place of a query's item among all items, ordered by the dot products of their vectors.
// Recall@k is the share of queries whose place is below k.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::tasks {

// Items are ordered by descending score; among equal scores, the item with the lower number comes
// first. A NaN comes before all numbers, and an item whose own score is NaN is in place N.
// A score is summed in the order of d, in fp32, or in fp64 if the vectors are fp64. Its bits do not
// depend on the other queries and items, so places do not depend on how either are divided.
// Computes on the CPU: B N D multiplications. Memory: 4 KiB, and copies of vectors that are not
// contiguous there.

// Shapes: queries_BD [B, D], items_ND [N, D], wanted_B [B] int64: the number of each query's item
//         -> [B] int64, from 0
// Throws: ConfigError for a number that is not an item, or shapes that do not fit
at::Tensor places_of(const at::Tensor& queries_BD, const at::Tensor& items_ND,
                     const at::Tensor& wanted_B);

// The same for items that are divided among ranks, in rank order. A rank may have no items or no
// queries. D and dtype are equal on all ranks.
// Shapes: queries_BD, wanted_B: this rank's; items_nD [n, D]: this rank's items -> [B] int64
// Comm:   per rank, with Q queries on all ranks: (D itemsize + 8) times the other ranks' queries
//         received; two all-reduces of Q numbers, of itemsize and of 8 bytes; 16 bytes from every
//         other rank
// Collective: every rank of the group
at::Tensor gather_places(comm::Communicator& group, const at::Tensor& queries_BD,
                         const at::Tensor& items_nD, const at::Tensor& wanted_B);

// (queries with a place below k, queries), for train::mean_of().
// Shapes: places_B [B] int64 -> [2] fp64
at::Tensor recall_state(const at::Tensor& places_B, int64_t k);

}  // namespace trireme::tasks
