// Identifies the ranks that meet at a store now, whatever earlier users left there.
#pragma once

#include <chrono>
#include <string>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Store;
}

namespace trireme::comm {

// A random name that all these ranks get and nobody else has, for names in /dev/shm and as a prefix
// of keys. Keys that a crashed job or an earlier group left in the store have no effect: each rank
// draws a new number, and rank 0 accepts only ranks that answer it.
// Comm:       through the store: three keys per rank
// Collective: all `size` ranks; a call must not begin before the previous one has ended on rank 0
// Throws:     CommError with the ranks that did not come within `timeout`; ConfigError when two
//             processes are the same rank
std::string agree_on_session(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                             std::chrono::milliseconds timeout);

}  // namespace trireme::comm
