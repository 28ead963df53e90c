// Collectives over contiguous bytes of ranks that share memory. Symmetric operands (heap.h) are
// read and written where they lie; ordinary ones are staged in chunks that stay in cache. Each rank
// says with its first post which of its operands are symmetric, so any mixture is served without a
// further agreement, and the bits are the same.
// Costs: n bytes of data, p ranks, s bytes a slot; an exchange is one meet() of exchange.h. Bytes
// are what a rank reads and writes.
// Collective: every rank of the exchange, after the same begin().
#pragma once

#include <cstddef>
#include <span>

#include <c10/core/ScalarType.h>

#include "trireme/comm/communicator.h"
#include "trireme/comm/shared/exchange.h"
#include "trireme/comm/shared/heap.h"

namespace trireme::comm::collectives {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

struct Shared {
  Exchange& exchange;
  const Heap& heap;
  bool zero_copy = true;  // whether this rank's operands may be read where they lie
};

struct Reduction {
  c10::ScalarType dtype;
  ReduceOp operation;
};

inline constexpr int kEveryRank = -1;

// Room a slot must have for groups of `size` ranks.
size_t least_slot_bytes(int size);

// In place, on `root` or every rank.
// Small and ordinary: 1 exchange, every rank reduces all of it, n written and p * n read.
// Symmetric: 2 exchanges; rank i reduces part i and writes it to all: n read, n written.
// Ordinary: 1 + n/s exchanges; the others' parts go through slots: 2n read, 3n written.
void all_reduce(const Shared& shared, Bytes data, const Reduction& reduction,
                int root = kEveryRank);

// inputs[r] has rank r's output's size. Small: 1 exchange. Symmetric inputs: 2 exchanges, n read
// and n/p written; else n/s exchanges.
void reduce_scatter(const Shared& shared, Bytes output, std::span<const ConstBytes> inputs,
                    const Reduction& reduction);

// Every rank's `input` to those who want them: outputs[r] has rank r's size; no outputs, nothing
// wanted. All-gather, gather and broadcast. Symmetric inputs: 2 exchanges, a read and a write a
// byte; else n/s exchanges. `confirm`: one exchange more, so that a wrong size is known to all.
void share(const Shared& shared, std::span<const Bytes> outputs, ConstBytes input,
           bool confirm = false);

// inputs[r] goes to rank r, outputs[r] comes from rank r; scatter is this with one rank's inputs.
// Symmetric inputs: 2 exchanges; else 1 + n/s.
void all_to_all(const Shared& shared, std::span<const Bytes> outputs,
                std::span<const ConstBytes> inputs);

}  // namespace trireme::comm::collectives
