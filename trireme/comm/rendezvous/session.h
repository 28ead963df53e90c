// The ranks that meet at a store now, told apart from whoever used it before.
#pragma once

#include <chrono>
#include <string>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Store;
}

namespace trireme::comm {

// A random name that all of them get and nobody else has: for names in /dev/shm, and as a prefix of
// keys. What is in the store already, of a job that crashed or an earlier group of this one,
// changes nothing: each rank draws a number anew, and rank 0 answers to those alone that answer
// back.
// Comm:       through the store: three keys a rank
// Collective: all `size` ranks; a later one must not begin before the former has ended on rank 0
// Throws:     CommError that names the ranks that did not come within `timeout`; ConfigError when
//             two processes are the same rank
std::string agree_on_session(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                             std::chrono::milliseconds timeout);

}  // namespace trireme::comm
