// Reading memory that other ranks write. A peer may be damaged or hostile, and may write while this
// rank reads. So a value is read once, and is bounded before it serves as a place, a size, an index
// or a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "trireme/comm/shared/exchange.h"
#include "trireme/comm/shared/heap.h"

namespace trireme::comm {

// The value now: the compiler does not read it again after a check.
template <typename T>
T read_once(const T& shared) {
  static_assert(std::is_arithmetic_v<T>);
  return static_cast<const volatile T&>(shared);
}

// The text up to its first zero byte or the end of `shared`, on one line: a '?' for each control
// character.
std::string text_of_peer(std::span<const char> shared);

struct PeerBytes {
  int peer;        // whose
  uint64_t place;  // in the heap
  size_t num_bytes;
  size_t alignment = 1;
};

// The memory that a peer says it means. `operation` is what fails without it; null: the
// collective that runs.
// Throws: CommError naming the peer, after aborting the group, unless all of it lies in one rank's
// arena at an address that the alignment divides
std::span<std::byte> span_of_peer(Exchange& exchange, const Heap& heap, const PeerBytes& bytes,
                                  const char* operation = nullptr);

}  // namespace trireme::comm
