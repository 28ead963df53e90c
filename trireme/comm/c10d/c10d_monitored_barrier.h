// Gloo's monitored barrier over any communicator: rank 0 learns which ranks did not come.
#pragma once

#include <chrono>
#include <mutex>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// Returns when every rank has called it. Rank 0 waits for `limit` at most; the others give it two
// seconds more, so that its verdict reaches them. It travels as messages: a rank that waits in a
// collective has not come, and neither kind of call delays the other.
// issuing: held for each message that is issued, as the group takes them from one thread at a time.
// wait_all_ranks: rank 0 names all that are late, not just the first.
// Comm: one byte to rank 0 and one back.
// Throws: c10::DistBackendError in Gloo's words and ours; the group is dead then
void monitored_barrier(Communicator& group, std::mutex& issuing, std::chrono::milliseconds limit,
                       bool wait_all_ranks);

}  // namespace trireme::comm
