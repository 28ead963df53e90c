// Gloo's monitored barrier over any communicator. Rank 0 learns which ranks did not come.
#pragma once

#include <chrono>
#include <mutex>

#include "trireme/comm/communicator.h"

namespace trireme::comm::inline internal {

// Returns when every rank has called it. Rank 0 waits at most `limit`. The others wait two seconds
// longer, so that its verdict reaches them. The barrier uses messages: a rank that waits in a
// collective counts as missing, and neither kind of call delays the other.
// issuing: held while a message is issued, because the group takes them from one thread at a time.
// wait_all_ranks: rank 0 names all late ranks, not just the first.
// Comm:   one byte to rank 0 and one back
// Throws: c10::DistBackendError in Gloo's words and ours; the group is dead afterwards
void monitored_barrier(Communicator& group, std::mutex& issuing, std::chrono::milliseconds limit,
                       bool wait_all_ranks);

}  // namespace trireme::comm::inline internal
