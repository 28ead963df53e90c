// Symmetric memory: a heap that every rank of the host has mapped. The place of a tensor in it is
// the same number on every rank, so peers read and write it directly. Ranks that are threads share
// all memory, so every tensor is symmetric. A peer may be damaged or hostile, and may write while
// this rank reads. What a peer writes is therefore read once, and checked before it is used as a
// place, a size, an index or a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trireme/comm/shared/exchange.h"
#include "trireme/comm/shared/segment.h"

namespace trireme::comm {

// Thread safety: any thread may call any method.
class Heap : public std::enable_shared_from_this<Heap> {
 public:
  // The place of a tensor in ordinary memory.
  static constexpr uint64_t kOrdinary = ~uint64_t{0};

  // For threads: places are addresses.
  static std::shared_ptr<Heap> of_threads();
  // Uses `segment`'s memory from `offset` on, `arena_bytes` for each rank. This rank allocates in
  // its own arena.
  static std::shared_ptr<Heap> in(std::shared_ptr<Segment> segment, size_t offset,
                                  size_t arena_bytes, int rank, int size);

  uint64_t place_of(const void* data, size_t num_bytes) const {
    const auto place = reinterpret_cast<uint64_t>(data) - base_;
    return place < extent_ && num_bytes <= extent_ - place ? place : kOrdinary;
  }
  // True for threads. The owner of a place may then free its memory while others read it.
  bool is_of_threads() const { return segment_ == nullptr; }
  // The address of one of this rank's own places.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): among threads a place is an address
  std::byte* at(uint64_t place) const { return reinterpret_cast<std::byte*>(base_ + place); }
  // The address of a place sent by a peer. Null unless all `num_bytes` lie in one rank's arena and
  // `alignment` divides the address. Among threads places are addresses and are trusted.
  std::byte* find(uint64_t place, uint64_t num_bytes, uint64_t alignment) const {
    if (place >= extent_) return nullptr;
    if (is_of_threads()) return at(place);
    const bool is_inside = num_bytes <= arena_bytes_ - place % arena_bytes_;
    return is_inside && (base_ + place) % alignment == 0 ? at(place) : nullptr;
  }

  // A tensor in this rank's arena. It keeps the heap's memory alive.
  // Throws: ConfigError when the arena or the host's shared memory is full
  at::Tensor empty(at::IntArrayRef sizes, c10::ScalarType dtype);

 private:
  Heap() = default;
  uint64_t allocate(uint64_t num_bytes);
  void free(uint64_t place);

  uint64_t base_ = 0;
  uint64_t extent_ = kOrdinary;
  std::shared_ptr<Segment> segment_;  // null for threads
  uint64_t segment_offset_ = 0;
  uint64_t arena_bytes_ = 0;
  uint64_t arena_begin_ = 0;  // the places of this rank's arena
  uint64_t arena_end_ = 0;

  std::mutex mutex_;
  uint64_t committed_ = 0;             // places below have memory
  std::map<uint64_t, uint64_t> free_;  // place -> bytes; adjacent ones are merged
  std::map<uint64_t, uint64_t> used_;
};

// The current value of memory that other ranks write. The compiler does not read it again after a
// check.
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

}  // namespace trireme::comm
