// What every transport must do, against the scalar model; each function is run by every rank of a
// group of any size.
#pragma once

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// Sum, product, min, max, average and bitwise, on every dtype that has them, of 0, 1, odd and large
// sizes: all_reduce, reduce and reduce_scatter, uneven ones included. Same bits as the model.
void check_reductions(Communicator& group);
// Every (operation, dtype) outside the table is a ConfigError, and the group lives on.
void check_unsupported_pairs(Communicator& group);
// What every transport refuses as a ConfigError, in the same words, before anything is sent: tags,
// peers, undefined tensors, blocks that do not fit. The group lives on.
void check_refused_calls(Communicator& group);
// broadcast, all_gather, all_to_all, gather, scatter: even, uneven and empty blocks.
void check_moves(Communicator& group);
// Tensors that are not contiguous, on either side of every operation.
void check_strided_tensors(Communicator& group);
// send and recv between all pairs, tags out of order, empty and large messages.
void check_point_to_point(Communicator& group);
// recv of whoever sends, and Work::source().
void check_any_source(Communicator& group);
// Several operations in flight, polled, waited for with a limit, out of order.
void check_background(Communicator& group);
// Groups by color, reversed by key, and none for a negative color; each does an all_reduce.
void check_split(Communicator& group);
// abort() ends what others wait for, with its reason; `group` itself stays.
void check_abort(Communicator& group);
void check_symmetric_memory(Communicator& group);
// Loans of messages in any memory and of any size, several at a time, sent on, kept and dropped
// early.
void check_borrow(Communicator& group);

}  // namespace trireme::comm
