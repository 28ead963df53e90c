// Collectives over contiguous bytes of ranks that share memory: a few meets (exchange.h), with
// reads and writes in between. Symmetric operands (heap.h) are read and written in place, where
// they lie. Ordinary ones are staged: their rank copies them into its slot, in chunks that stay in
// cache. The first post of a call says which operands are symmetric. So any mixture works without
// a further agreement, and the bits are the same. A reduce-scatter, for example:
//
//   rank A: its operand a is symmetric          rank B: its operand b is ordinary, two chunks
//   note: a's place                             note: b is staged; slot: chunk 0 of b
//   meet                     <------------->    meet
//   use chunk 0 of a, and of b in B's slot      use chunk 0 of b, and of a in A's memory
//     :                                         other slot: chunk 1 of b
//   meet                     <------------->    meet
//   use chunk 1 of both                         use chunk 1 of both
//   closing meet             <------------->    closing meet
//   return: the caller may change or free a     return
//
// Why this is right:
// - A staged chunk needs no closing meet. Its slot is filled again only after the next meet, and by
//   then every rank has used the chunk.
// - An operand in place needs one. Without it a rank could return while a peer still reads its
//   operand or writes results into it.
// - All ranks make the same meets. They derive the number from values that every rank sees: sizes
//   in the call's signature, and the posts of the first meet.
// - meet() is the only synchronisation. It publishes whatever a rank wrote before it: note, slot,
//   and results in the memory of peers. There is no atomic here.
//
// Failure: meet() throws, or a peer's post cannot be true (heap.h). The group is aborted
// then, and outputs may be partly written. A peer that is between two meets does not notice before
// the next one, and may use this rank's symmetric operands until then. So a rank that lends one
// (Exchange::lend()) throws from meet() only when its peers have come to theirs.
//
// Costs are per rank for n bytes of data, p ranks and slots of s bytes; bytes read and written are
// those in memory. n/s is rounded up, at least 1. A symmetric operand of up to 1 KiB counts as
// ordinary.
// Collective: every rank of the exchange, after the same begin()
// Throws:     CommError as meet() does, and when sizes or a peer's posts do not fit
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
  bool zero_copy = true;  // peers may use this rank's symmetric operands in place
};

struct Reduction {
  c10::ScalarType dtype;
  ReduceOp operation;
};

inline constexpr int kEveryRank = -1;

// The smallest slot that a group of `size` ranks can work with.
size_t least_slot_bytes(int size);

// Reduces `data` in place, on `root` or on every rank. Terms are taken in rank order.
//   up to 48 bytes       1 meet. Data travels in the note; every rank reduces all of it.
//   ordinary, to 8 KiB   1 meet. Every rank reduces all of it: (p + 1) * n read, 2n written.
//   all symmetric        2 meets. Rank i reduces part i and writes it to all: n read, n written.
//   otherwise            1 + n/s meets. The same parts, through the slots: (3 - 2/p) * n read, 2n
//                        written.
void all_reduce(const Shared& shared, Bytes data, const Reduction& reduction,
                int root = kEveryRank);

// Reduces block r of every rank's inputs into rank r's output. inputs[r] has the size of rank r's
// output.
//   up to 48 bytes       1 meet. All inputs travel in the note.
//   all symmetric        2 meets. n read, n/p written.
//   otherwise            n/s meets, and a closing one when any block is symmetric.
void reduce_scatter(const Shared& shared, Bytes output, std::span<const ConstBytes> inputs,
                    const Reduction& reduction);

// Gives every rank's `input` to all ranks that want it: all-gather, gather, broadcast. outputs[r]
// has the size of rank r's input. A rank that passes no outputs wants nothing.
//   all symmetric        2 meets. Each byte is read once and written once.
//   otherwise            n/s meets for a longest input of n bytes, and a closing one when any input
//                        is symmetric.
// `confirm`: adds a closing meet, so that a wrong size that only some ranks can see fails on all.
void share(const Shared& shared, std::span<const Bytes> outputs, ConstBytes input,
           bool confirm = false);

// Moves inputs[r] to rank r, and fills outputs[r] from rank r. Scatter is this with one rank's
// inputs.
//   all symmetric        2 meets. Each byte is read once and written once.
//   otherwise            n/s meets for equal blocks of n bytes in all, and a closing one when any
//                        block is symmetric.
void all_to_all(const Shared& shared, std::span<const Bytes> outputs,
                std::span<const ConstBytes> inputs);

}  // namespace trireme::comm::collectives
