// What programs written for torch.distributed's Gloo rely on, over any communicator: the words of
// its errors, and its monitored barrier.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

enum class FailureKind {
  kPeerLost,   // died, left or gave up
  kTimedOut,   // in a call
  kNeverCame,  // to the group's first meeting
  kMismatch,   // the ranks called different operations
  kAborted,    // by a rank that asked for it
};

// The kind of failure that a CommError's text describes. On every transport failures travel between
// ranks as text, so a rank that hears of one from a peer has only the text.
FailureKind kind_of(std::string_view failure);

// "[trireme] Connection closed by peer: all_reduce #2 of group 0 (3 ranks), ...: rank 2 died"
std::string in_words_of_gloo(const std::string& failure);

// Runs `operation`. Turns a CommError into a c10::DistBackendError, whose text begins with the
// phrase that programs written for Gloo look for, followed by our own text.
void as_c10d_errors(const std::function<void()>& operation);

// Gloo's monitored barrier over any communicator. Rank 0 learns which ranks did not come.
// Returns when every rank has called it. Rank 0 waits at most `limit`. The others wait two seconds
// longer, so that its verdict reaches them. The barrier uses messages: a rank that waits in a
// collective counts as missing, and neither kind of call delays the other.
// issuing: held while a message is issued, because the group takes them from one thread at a time.
// wait_all_ranks: rank 0 names all late ranks, not just the first.
// Comm:   one byte to rank 0 and one back
// Throws: c10::DistBackendError in Gloo's words and ours; the group is dead afterwards
void monitored_barrier(Communicator& group, std::mutex& issuing, std::chrono::milliseconds limit,
                       bool wait_all_ranks);

}  // namespace trireme::comm
