// Collectives over contiguous bytes, staged through an Exchange in chunks. Each states how many
// exchanges it takes for n bytes and s bytes a slot; a chunk is read and written once a rank.
// Collective: every rank of the exchange, after the same begin().
#pragma once

#include <cstddef>
#include <span>

#include <c10/core/ScalarType.h>

#include "trireme/comm/communicator.h"
#include "trireme/comm/exchange.h"

namespace trireme::comm::staged {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

struct Reduction {
  c10::ScalarType dtype;
  ReduceOp operation;
};

// In place. Small (one chunk, few bytes): 1 exchange, every rank reduces all of it. Else 2 *
// ceil(n/s): each rank reduces its part of the chunk, in rank order, and posts it.
void all_reduce(Exchange& exchange, Bytes data, const Reduction& reduction);
// The result on `root`; ceil(n/s).
void reduce(Exchange& exchange, Bytes data, int root, const Reduction& reduction);
// ceil(n/s).
void broadcast(Exchange& exchange, Bytes data, int root);
// outputs[r] has rank r's size; ceil(max size / s).
void all_gather(Exchange& exchange, std::span<const Bytes> outputs, ConstBytes input);
// inputs[r] has rank r's output's size; ceil(max size * p / s).
void reduce_scatter(Exchange& exchange, Bytes output, std::span<const ConstBytes> inputs,
                    const Reduction& reduction);
// inputs[r] goes to rank r. Empty spans take part in nothing, so gather and scatter are this too.
// 1 + ceil(max size * p / s).
void all_to_all(Exchange& exchange, std::span<const Bytes> outputs,
                std::span<const ConstBytes> inputs);

}  // namespace trireme::comm::staged
