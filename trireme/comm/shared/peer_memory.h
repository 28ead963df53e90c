// Reads memory that other ranks write. A peer may be damaged or hostile, and may write while this
// rank reads. A value is therefore read once, and checked before it is used as a place, a size, an
// index or a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "trireme/comm/shared/exchange.h"
#include "trireme/comm/shared/heap.h"

namespace trireme::comm::inline internal {

// The current value. The compiler does not read it again after a check.
template <typename T>
T read_once(const T& shared) {
  static_assert(std::is_arithmetic_v<T>);
  return static_cast<const volatile T&>(shared);
}

// The text up to the first zero byte or the end of `shared`, on one line. A '?' replaces each
// control character.
std::string text_of_peer(std::span<const char> shared);

struct PeerBytes {
  int peer;        // whose memory
  uint64_t place;  // in the heap
  size_t num_bytes;
  size_t alignment = 1;
};

// The memory that a peer refers to. `operation` is the call that fails without it; null: the
// current collective.
// Throws: CommError naming the peer, after aborting the group, unless all of it lies in one rank's
//         arena and the alignment divides its address
std::span<std::byte> span_of_peer(Exchange& exchange, const Heap& heap, const PeerBytes& bytes,
                                  const char* operation = nullptr);

}  // namespace trireme::comm::inline internal
